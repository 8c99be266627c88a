"""What a run did: its phases, what its program reported, where its ranks ran, and what they used."""
