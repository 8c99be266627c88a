"""Causal sets: which are manifold-like, and of which dimension."""
