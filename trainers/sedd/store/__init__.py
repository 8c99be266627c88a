"""Proteins packed in files that are mapped into memory, and how these are made of FASTA and .pt."""
