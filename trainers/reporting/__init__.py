"""What people and files learn of a training."""
