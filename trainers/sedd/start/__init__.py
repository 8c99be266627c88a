"""The command line of `castoff train sedd`: its YAML, its flags, and the ranks that it starts."""
