"""Inverse folding on real structures: `python -m bench.inverse_folding`."""
