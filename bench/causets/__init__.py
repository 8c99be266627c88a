"""What the network is worth on causal sets: `python -m bench.causets`."""
