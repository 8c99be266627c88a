"""What trainers log, without the breaks that make it fit a terminal."""

from __future__ import annotations

import re


def unwrapped(text: str) -> str:
    """Each message as one line."""
    wrapped = r"^\[RANK \d+\] .*(?:\n    \S.*)+"
    return re.sub(wrapped, lambda found: _joined(found[0]), text, flags=re.MULTILINE)


def _joined(lines: str) -> str:
    return " ".join(line.strip() for line in lines.splitlines())
