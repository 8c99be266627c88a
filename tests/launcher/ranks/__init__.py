"""Who am I: `castoff.launcher.ranks` against environments recorded from real launchers."""
