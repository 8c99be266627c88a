"""The ranks of an attempt that ended well before others, which may wait for them, or fail without them."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.text.failure import HANG

_SOON = 10.0
"""Seconds within which the ranks of a program that ends well follow each other."""


_MANY = 256
"""Of more ranks, the first of each node alone leaves a file: as with their logs."""


class EarlyRank(NamedTuple):
    """A rank that ended well before the first failure, or long before others."""

    rank: int
    after: float
    """Seconds from the attempt's start."""


def early_ranks(run: RunDirectory, attempt: AttemptStatus) -> list[EarlyRank]:
    """Those of an attempt that runs, or did not end well; none of a hang, whose reason names them."""
    is_hang = attempt.failure is not None and attempt.failure.reason == HANG
    if attempt.started is None or attempt.ending in ("done", "resume") or is_hang:
        return []
    logs = Path(attempt.logs)
    folder = logs.parents[1] / "attempts" / logs.name
    found = []
    with contextlib.suppress(OSError), os.scandir(folder / "ended") as names:
        for one in names:
            if one.name.isdecimal():
                with contextlib.suppress(OSError):
                    found.append(EarlyRank(int(one.name), one.stat().st_mtime - attempt.started))
    if not found or len(found) in _all(run.facts()):
        return []
    until = _until(attempt, folder) - attempt.started
    return sorted(one for one in found if one.after < until)


def _all(plan: Facts) -> set[int | None]:
    """How many files there are once every rank has ended well."""
    of_nodes = sum(nodes for _, nodes in plan.layout) if (plan.ranks or 0) > _MANY else None
    return {plan.ranks, of_nodes}


def _until(attempt: AttemptStatus, folder: Path) -> float:
    """Before when a rank that is early has ended."""
    if attempt.failure is not None:
        with contextlib.suppress(OSError):
            return (folder / "failure.json").stat().st_mtime  # by the clock that dates the others, too
    return (attempt.ended or (time.time() if attempt.state == "running" else 0.0)) - _SOON


def early_words(early: list[EarlyRank], attempt: AttemptStatus) -> str | None:
    """As `rank 1 ended well after 3 s, while others still run`; None: there are none."""
    if not early:
        return None
    first, last = (f"{max(at(one.after for one in early), 0):.0f}" for at in (min, max))
    ranks = f"rank{'s' * (len(early) > 1)} {cpulist([one.rank for one in early])}"
    others = "while others still run" if attempt.state == "running" else "while others ran on"
    if attempt.failure is not None:
        others = "before the first failure"
    return f"{ranks} ended well after {first if first == last else f'{first} to {last}'} s, {others}"
