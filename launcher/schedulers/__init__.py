"""Schedulers: the interface that castoff needs, and a folder for each scheduler."""
