"""What starts the ranks."""
