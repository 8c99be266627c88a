"""Decides whether castoff may read code or configuration from a path, by who else can change it."""
