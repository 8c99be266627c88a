"""Profiles of machines: made on a login node, checked against the scheduler, kept up to date."""
