"""A run's directory and all that is written there."""
