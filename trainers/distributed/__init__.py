"""Processes that work together, and detect when one fails."""
