"""What a person writes: job files and site profiles."""
