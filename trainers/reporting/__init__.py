"""What a training reports to people and files."""
