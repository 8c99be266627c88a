"""Each training system under every launcher: what they have in common, whatever they train."""
