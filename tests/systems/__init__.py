"""Each training system under every starter: what they have in common, whatever they train."""
