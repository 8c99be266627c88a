"""Score-entropy diffusion on real proteins: `python -m bench.proteins`."""
