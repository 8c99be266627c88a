"""Node-hours: what runs requested and used, start by start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from castoff.launcher.history.starts import starts
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.states import RunStatus


class Share(NamedTuple):
    """One start of a job, and what it cost."""

    site: str
    account: str
    """Empty: the scheduler's default, or none."""
    queue: str
    ending: str
    """How it ended, or `running`."""
    requested: float | None
    """Node-hours until its walltime; None: it had none."""
    used: float | None
    """Node-hours from its beginning to its end, or until now; None: nobody knows when it ended."""


class Total(NamedTuple):
    """Several starts together."""

    starts: int
    requested: float
    used: float
    unbounded: int
    """Starts without a walltime, which requested is without."""
    unknown: int
    """Starts whose end nobody knows, which used is without."""


def shares(now: RunStatus, plan: Facts, *, at: float, since: float = 0.0) -> Iterator[Share]:
    """What the starts of a run cost that began since a time, both in seconds since the epoch; `at`: now.

    A start that waits costs nothing yet. A script that stood alone counts as one on as many nodes as its
    layout has.
    """
    nodes = plan.held_nodes or sum(count for _, count in plan.layout) or 1
    for start in starts(now):
        if start.began is None or start.began < since:
            continue
        held = start.seconds(at)
        yield Share(
            site=now.site,
            account=plan.account or "",
            queue=plan.queue or "",
            ending=start.last.word,
            requested=None if now.walltime is None else nodes * now.walltime / 3600,
            used=None if held is None else nodes * held / 3600,
        )


def total(found: Iterable[Share]) -> Total:
    """The sum of shares."""
    held = [*found]
    return Total(
        starts=len(held),
        requested=sum(one.requested or 0.0 for one in held),
        used=sum(one.used or 0.0 for one in held),
        unbounded=sum(one.requested is None for one in held),
        unknown=sum(one.used is None for one in held),
    )
