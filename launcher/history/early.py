"""The ranks of an attempt that ended well long before the others: these may wait for them in vain."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from launcher.config.quantities import cpulist
from launcher.runs.run import RunDirectory
from launcher.runs.states import HANG, AttemptStatus

_SOON = 10.0
"""Seconds within which the ranks of a program that ends well follow each other."""


class EarlyRank(NamedTuple):
    """A rank that ended well, long before others or while they still run."""

    rank: int
    after: float
    """Seconds from the attempt's start."""


def early_ranks(run: RunDirectory, attempt: AttemptStatus) -> list[EarlyRank]:
    """Those of an attempt that runs, or did not end well; none of a hang, whose reason names them.

    Of more than 256 ranks, the first of each node alone leaves word.
    """
    is_hang = attempt.failure is not None and attempt.failure.reason == HANG
    if attempt.started is None or attempt.ending in ("done", "resume") or is_hang:
        return []
    until = attempt.ended or (time.time() if attempt.state == "running" else None)
    found = []
    logs = Path(attempt.logs)
    with (
        contextlib.suppress(OSError),
        os.scandir(logs.parents[1] / "attempts" / logs.name / "ended") as names,
    ):
        for one in names:
            if one.name.isdecimal():
                with contextlib.suppress(OSError):
                    found.append(EarlyRank(int(one.name), one.stat().st_mtime - attempt.started))
    if not found or until is None or len(found) == run.facts().ranks:
        return []
    return sorted(one for one in found if until - attempt.started - one.after > _SOON)


def early_words(early: list[EarlyRank], attempt: AttemptStatus) -> str | None:
    """As `rank 1 ended well after 3 s, while others still run`; None: there are none."""
    if not early:
        return None
    first, last = (f"{max(at(one.after for one in early), 0):.0f}" for at in (min, max))
    ranks = f"rank{'s' if len(early) > 1 else ''} {cpulist([one.rank for one in early])}"
    others = "others still run" if attempt.state == "running" else "others ran on"
    return f"{ranks} ended well after {first if first == last else f'{first} to {last}'} s, while {others}"
