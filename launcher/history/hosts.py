"""Where the ranks of an attempt ran: its hosts, and the ranks that the plan puts on each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.records import Facts, Start, read
from castoff.launcher.runs.run import RunDirectory


class HostRanks(NamedTuple):
    """One host of an attempt."""

    host: str
    ranks: range | None
    """None: it is not known which, as where the job's own flags decide."""


def hosts(run: RunDirectory, member: int, attempt: int) -> list[HostRanks]:
    """The hosts of an attempt in the order of their node ranks; none if it did not get that far.

    Raises:
        CastoffError: the plan or the attempt's start cannot be read.
    """
    folder, plan = run.path / "attempts" / f"{member}.{attempt}", run.facts()
    names = _names(folder / "hosts")
    if not names and [nodes for _, nodes in plan.layout] == [1]:  # a job of one host, which its script is on
        start = read(folder / "start.json", Start)
        names = [start.host] if start and start.host else []
    return placed(names, plan)


def placed(names: list[str], plan: Facts) -> list[HostRanks]:
    """The ranks of each host, as the plan puts them."""
    counts = [ranks for ranks, nodes in plan.layout for _ in range(nodes)]
    if plan.own_distribution or len(counts) != len(names):
        return [HostRanks(name, None) for name in names]
    found, first = [], 0
    for name, count in zip(names, counts, strict=True):
        found.append(HostRanks(name, range(first, first + count)))
        first += count
    return found


def _names(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []
