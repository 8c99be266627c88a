"""Causal sets: finite partial orders, some of which look like pieces of spacetime."""
