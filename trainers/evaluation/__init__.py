"""Evaluates a model, and decides when to stop."""
