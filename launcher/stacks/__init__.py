"""`castoff stacks`: where the ranks of a running job are in their programs."""
