"""Training samples: pairs and chains, and which of them are held out."""
