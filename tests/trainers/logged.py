"""What trainers log, without the breaks that make it fit a terminal."""

from __future__ import annotations

import re


def unwrapped(text: str) -> str:
    """Each message as one line, also where castoff launch has put its rank before each."""
    wrapped = r"^(\[\d+\] |)\[RANK \d+\] .*(?:\n\1    \S.*)+"
    return re.sub(wrapped, lambda found: _joined(found[0]), text, flags=re.MULTILINE)


def _joined(lines: str) -> str:
    first, *others = lines.splitlines()
    return " ".join([first, *(re.sub(r"^(?:\[\d+\] )? +", "", line) for line in others)])
