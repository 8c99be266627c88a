"""When the ranks of an attempt last wrote a line or reported progress: a long silence may mean a hang."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from castoff.launcher.runs.states import AttemptStatus

LONG = 60.0
"""Seconds without output or progress after which the silence is reported."""

_PROGRESS = ("progress", "metrics.jsonl")
"""The files in an attempt's folder in which a program reports progress."""


def last_sign(attempt: AttemptStatus) -> float | None:
    """The time of the last line or progress, in seconds since the epoch; None if no rank has started."""
    logs = Path(attempt.logs)
    folder = logs.parents[1] / "attempts" / logs.name
    times = []
    with contextlib.suppress(OSError), os.scandir(logs) as entries:
        for entry in entries:
            if entry.name.startswith(("rank-", "node-")):
                with contextlib.suppress(OSError):
                    times.append(entry.stat().st_mtime)
    if times:
        for name in _PROGRESS:
            with contextlib.suppress(OSError):
                times.append((folder / name).stat().st_mtime)
    return max(times, default=None)
