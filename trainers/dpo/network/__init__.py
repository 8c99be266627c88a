"""The network: what it is told of backbones, its layers, what is drawn with it, and its files."""
