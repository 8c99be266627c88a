"""One process of a node imports what all its ranks need, and each rank starts as a copy of it."""
