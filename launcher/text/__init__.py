"""Text for other readers: shells, terminals, pictures."""
