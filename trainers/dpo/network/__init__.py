"""The network: its features of backbones, its layers, what is drawn with it, and its files."""
