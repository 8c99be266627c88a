"""When the ranks of an attempt last wrote a line or made progress: silence may mean a hang."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from castoff.launcher.runs.states import AttemptStatus

LONG = 60.0
"""Seconds of silence that are reported."""

_PROGRESS = ("progress", "metrics.jsonl")
"""The files in which a program reports its progress, in its attempt's folder."""


def last_sign(attempt: AttemptStatus) -> float | None:
    """The time of the last line or progress, in seconds since the epoch; None if no rank has started."""
    logs = Path(attempt.logs)
    folder = logs.parents[1] / "attempts" / logs.name
    times = []
    with contextlib.suppress(OSError), os.scandir(logs) as found:
        for one in found:
            if one.name.startswith(("rank-", "node-")):
                with contextlib.suppress(OSError):
                    times.append(one.stat().st_mtime)
    if times:
        for name in _PROGRESS:
            with contextlib.suppress(OSError):
                times.append((folder / name).stat().st_mtime)
    return max(times, default=None)
