"""Starting ranks on one host without a scheduler or an MPI: castoff's own starter."""
