"""Read YAML files into typed structs: job files, sites and, in `trainers`, trainings."""

from castoff.launcher.errors import InvalidInput, Problem

__all__ = ["InvalidInput", "Problem"]
