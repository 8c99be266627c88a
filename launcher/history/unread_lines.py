"""Why a program's metrics file has no metrics: its first line that `metrics` cannot use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from castoff.launcher.errors import shown

_SEARCHED = 1000
"""The most lines of a file that are searched: the first usually shows the mistake."""
_LONGEST = 1 << 16


def unread_line(files: Iterable[Path]) -> str | None:
    """The place of the first line that holds no metric, and why; None: there is no such line."""
    for path in files:
        try:
            with path.open("rb") as file:
                lines = islice(iter(lambda: file.readline(_LONGEST), b""), _SEARCHED)
                wrong = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
                found = next(((number, line, why) for number, line in wrong if (why := _why(line))), None)
        except OSError:
            continue
        if found is not None:
            number, line, why = found
            return f"{path}:{number}: {why}: {shown(line.decode(errors='replace').strip())}"
    return None


def _why(line: bytes) -> str | None:
    """Why a line holds no metric; None if it does, or may only describe the program."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return "is not JSON"
    if not isinstance(value, dict):
        return "is not a JSON object"
    texts = [name for name, item in value.items() if isinstance(item, str) and _is_number(item)]
    has_number = any(isinstance(item, int | float) and name != "step" for name, item in value.items())
    return f"has {texts[0]} as text, not as a number" if texts and not has_number else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
