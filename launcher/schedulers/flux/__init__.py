"""Flux: its words, its commands and what they answer, and nothing of any other scheduler."""
