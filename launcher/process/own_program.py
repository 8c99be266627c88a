"""Runs castoff's modules as programs, by the same Python."""

from __future__ import annotations

import sys

# Keeps Python from searching the working directory first, which may have a castoff.py of the user's.
_SAFE_PATH = ["-P"] if sys.version_info >= (3, 11) else []


def own_program(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of castoff, such as `castoff.trainers.gnn`."""
    return [sys.executable, *_SAFE_PATH, "-m", "castoff.program", module, *arguments]
