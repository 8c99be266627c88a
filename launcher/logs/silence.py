"""When the ranks of an attempt last wrote anything, or got further: silence may be a hang."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from castoff.launcher.runs.states import AttemptStatus

LONG = 60.0
"""Seconds of silence that are worth a word."""

_PROGRESS = ("progress", "metrics.jsonl")
"""What a program writes in its attempt's folder to say how far it is."""


def last_sign(attempt: AttemptStatus) -> float | None:
    """In seconds since the epoch; None where no rank has begun."""
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
