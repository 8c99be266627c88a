"""Proteins packed in memory-mapped files, and how these are made from FASTA and .pt."""
