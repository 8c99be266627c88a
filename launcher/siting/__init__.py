"""Profiles of machines: making them on a login node, comparing them with the scheduler, updating them."""
