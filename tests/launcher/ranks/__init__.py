"""Who am I: `launcher.ranks` against environments recorded from real launchers."""
