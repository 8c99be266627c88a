"""What people get wrong, and what they see of it."""
