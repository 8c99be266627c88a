"""Inverse folding on real structures: `python -m tests.bench.inverse_folding`."""
