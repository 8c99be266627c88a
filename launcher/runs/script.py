"""The two halves of a script: the head, which is the job, and the machinery below its last marker."""

from __future__ import annotations

import re

MARK = "# === castoff "
"""How the marker begins: a line of a script below which nothing is about the job."""

_SCHEDULER = re.compile(rf"^{re.escape(MARK)}for (\w+)", re.MULTILINE)


def head_of(script: str) -> str:
    """A script down to its marker: the last line that looks like one, as the job's own text may hold some."""
    at = max(script.rfind(f"\n{MARK}"), 0)
    return script[: script.find("\n", at + 1) + 1] if at else script


def directives_of(script: str) -> str:
    """The lines above the first that is not a comment: schedulers look no further."""
    found = re.match(r"(?:[ \t]*(?:#.*)?\n)*", script)
    return found.group() if found else ""


def scheduler_in(script: str) -> str | None:
    """Which scheduler a script is for; None where it does not say."""
    found = _SCHEDULER.findall(head_of(script))
    return found[-1] if found else None
