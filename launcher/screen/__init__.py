"""The live screen of `castoff top`: reading runs, laying them out, and the keys."""
