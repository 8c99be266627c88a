"""Work in an allocation that somebody waits for: castoff alloc, shell and launch."""
