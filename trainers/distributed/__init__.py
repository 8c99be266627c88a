"""Processes that work together, and notice when one does not."""
