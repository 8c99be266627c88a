"""The live screen of `castoff top`: what is looked at, how it is laid out, and the keys."""
