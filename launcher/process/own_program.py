"""castoff's own modules, run as programs by the Python that runs castoff."""

from __future__ import annotations

import sys

# Keeps Python from looking in the working directory first, where a castoff.py of the user's may lie.
_SAFE_PATH = ["-P"] if sys.version_info >= (3, 11) else []


def own_program(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module of castoff, such as `castoff.trainers.gnn`."""
    return [sys.executable, *_SAFE_PATH, "-m", "castoff.program", module, *arguments]
