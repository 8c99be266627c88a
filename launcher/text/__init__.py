"""Text for shells, terminals and pictures."""
