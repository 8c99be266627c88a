"""Reads and checks configurations, and expands sweeps."""
