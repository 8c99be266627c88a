"""Starting processes."""
