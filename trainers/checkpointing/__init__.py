"""Saves to disk what must survive a job, and restores it."""
