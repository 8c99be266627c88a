"""Score-entropy diffusion on real proteins: `python -m tests.bench.proteins`."""
