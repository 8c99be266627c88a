"""Causal sets: finite partial orders, of which some look like pieces of spacetime and some do not."""
