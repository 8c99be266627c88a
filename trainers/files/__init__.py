"""Writes files and folders that are complete on disk, and locks them."""
