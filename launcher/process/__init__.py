"""Processes: how they are started and attached to a terminal, and the locks that they hold."""
