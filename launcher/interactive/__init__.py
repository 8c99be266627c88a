"""Interactive work in allocations: castoff alloc, shell and launch."""
