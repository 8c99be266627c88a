"""Starting processes, attaching them to a terminal, and locks and files that they share."""
