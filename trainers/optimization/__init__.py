"""Turns losses into optimizer steps."""
