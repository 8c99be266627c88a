"""Protein structures: files that are read once, and the data kept from them."""
