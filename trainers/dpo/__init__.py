"""Protein inverse folding tuned by preferences: a network that finds sequences for backbones."""
