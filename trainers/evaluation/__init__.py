"""How good a model is, and when to stop."""
