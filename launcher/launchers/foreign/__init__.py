"""Reads command lines of launchers as people write them in their scripts. Pure."""
