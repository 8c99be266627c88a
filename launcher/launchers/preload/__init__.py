"""One process of a node imports what all its ranks need, and each rank begins as a copy of it."""
