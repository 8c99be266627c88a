"""Reads the command lines of launchers in users' own scripts. Pure."""
