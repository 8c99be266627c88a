"""The network: features of backbones, layers, sampling, and files."""
