"""When the ranks of an attempt last wrote a line or reported progress: a long silence may mean a hang.

On a shared file system each look at a file costs, so few files are looked at while the ranks are not silent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.text.words import brief

LONG = 60.0
"""Seconds without output or progress after which the silence is reported."""

_PROGRESS = ("metrics.jsonl", "progress")
"""The files in an attempt's folder in which a program reports progress."""

_OFTEN = 0.1
"""How long a silence is reported before files are read again, as a fraction of the silence."""


def last_sign(attempt: AttemptStatus) -> float | None:
    """The time of the last line or progress, in seconds since the epoch; None if no rank has started."""
    return max(_signs(attempt), default=None)


def silent_since(attempt: AttemptStatus, now: float) -> float | None:
    """The time of the last line or progress of a running attempt, if that is long ago; else None."""
    last = None
    for sign in _signs(attempt) if attempt.state == "running" else ():
        if now - sign < LONG:
            return None
        last = sign if last is None else max(last, sign)
    return last


def silence_words(since: float | None, now: float) -> str:
    """How long an attempt has been silent, as `no output for 2m`; empty if it is not silent."""
    return "" if since is None else f"no output for {brief(now - since)}"


class Silences:
    """Looks repeatedly for attempts that are silent, and at their files no more often than necessary."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float | None, float]] = {}
        """When each attempt became silent, and until when no files are read, by the folder of its logs."""

    def since(self, attempt: AttemptStatus, now: float) -> float | None:
        """See `silent_since`; what it returns may be a moment old."""
        since, until = self._known.get(attempt.logs, (None, 0.0))
        if now >= until or attempt.state != "running":
            since = silent_since(attempt, now)
            pause = LONG / 2 if since is None else (now - since) * _OFTEN
            self._known[attempt.logs] = since, now + pause
        return since


def _signs(attempt: AttemptStatus) -> Iterator[float]:
    """The times at which an attempt's files were written; those first that a program at work writes often."""
    logs = Path(attempt.logs)
    for name in _PROGRESS:
        with contextlib.suppress(OSError):
            yield (logs.parents[1] / "attempts" / logs.name / name).stat().st_mtime
    with contextlib.suppress(OSError), os.scandir(logs) as entries:
        for entry in entries:
            if entry.name.startswith(("rank-", "node-")):
                with contextlib.suppress(OSError):
                    yield entry.stat().st_mtime
