"""What a person writes, read into typed structs: for job files, sites and, in `trainers`, trainings."""

from launcher.errors import InvalidInput, Problem

__all__ = ["InvalidInput", "Problem"]
