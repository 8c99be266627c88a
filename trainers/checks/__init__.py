"""Mistakes that would stay silent, detected in the first step on all ranks."""
