"""Checks of a job before it is submitted: files, modules, syntax."""
