"""Command lines of launchers as people write them in their scripts, read. Pure."""
