"""What the training loop stands on, one reason a file."""
