"""Whose word castoff takes."""
