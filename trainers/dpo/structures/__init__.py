"""Protein structures: files that are read once, and what is kept of them."""
