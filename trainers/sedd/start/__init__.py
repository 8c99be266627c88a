"""How `castoff train sedd` is told what to do: its YAML, its flags, and the ranks that it starts itself."""
