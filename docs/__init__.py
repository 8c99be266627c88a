"""The documents; `docs.generate` writes their references."""
