"""Mistakes that would stay silent, looked for in the first step on all ranks."""
