"""What state runs are in."""
