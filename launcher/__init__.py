"""castoff's launcher: from a job file to running ranks. `castoff` offers its public names."""
