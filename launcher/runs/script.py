"""The two parts of a script: the head, which is specific to the job, and the machinery below a marker."""

from __future__ import annotations

import re

MARK = "# === castoff "
"""The beginning of the marker line."""

_SCHEDULER = re.compile(rf"^{re.escape(MARK)}for (\w+)", re.MULTILINE)


def head_of(script: str) -> str:
    """The part of a script above its marker: the last such line, since the job's own text may
    contain others.
    """
    marker = max(script.rfind(f"\n{MARK}"), 0)
    return script[: script.find("\n", marker + 1) + 1] if marker else script


def directives_of(script: str) -> str:
    """The lines above the first that is not a comment: schedulers look for directives only there."""
    lines = re.match(r"(?:[ \t]*(?:#.*)?\n)*", script)
    return lines.group() if lines else ""


def scheduler_in(script: str) -> str | None:
    """The scheduler that a script is for; None if it names none."""
    schedulers = _SCHEDULER.findall(head_of(script))
    return schedulers[-1] if schedulers else None
