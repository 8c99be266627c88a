"""Schedulers: what castoff needs from them, and a folder for each."""
