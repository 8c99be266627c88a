"""What the network is worth on causal sets: `python -m tests.bench.causets`."""
