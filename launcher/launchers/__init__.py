"""Launchers, which start the ranks."""
