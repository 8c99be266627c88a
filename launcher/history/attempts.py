"""The history of an attempt: its phases, the hosts of its ranks, and ranks that ended before others."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import CastoffError
from castoff.launcher.history.reading import METRICS, first_time
from castoff.launcher.runs.records import PER_RANK_FILES, Facts, Start, Submission, read, record_bytes
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus
from castoff.launcher.text.failure import HANG

QUEUED, SETUP, START_UP, RUNNING = "queued", "setup", "start-up", "running"
"""Until the script began; until it started the ranks; until the program's first report; until the end."""

LAUNCHED = "launched"
"""The file in an attempt's folder with the time at which its ranks were started, in whole seconds."""


class Phase(NamedTuple):
    """A part of an attempt's time; times are seconds since the epoch."""

    name: str
    start: float
    end: float | None
    """None: the phase has not ended."""

    def seconds(self, now: float) -> float:
        """Seconds that the phase took, or has taken until `now`."""
        return max((now if self.end is None else self.end) - self.start, 0.0)


def phases(
    run: RunDirectory, submission: Submission | None, member: MemberStatus, attempt: AttemptStatus
) -> list[Phase]:
    """The phases of an attempt, in order; none if it has not begun.

    START_UP ends with the first line of the attempt's metrics; without metrics, RUNNING begins with the
    ranks.
    """
    if attempt.started is None:
        return []
    folder = run.path / "attempts" / f"{member.member}.{attempt.attempt}"
    marks = [(SETUP, attempt.started)]
    launched, first = _launched(folder), first_time(folder / METRICS)
    if launched is not None:
        marks += [(START_UP, launched), (RUNNING, first)] if first is not None else [(RUNNING, launched)]
    queued = _queued_since(submission, member, attempt)
    if queued is not None:
        marks.insert(0, (QUEUED, min(queued, attempt.started)))
    last = attempt.ended if attempt.state != "running" else None
    ends = [*(begin for _, begin in marks[1:]), last]
    # Clocks of hosts differ, so a phase may seem to end before it begins. It then counts as empty.
    pairs = zip(marks, ends, strict=True)
    return [Phase(name, start, None if end is None else max(start, end)) for (name, start), end in pairs]


def waiting(submission: Submission | None, member: MemberStatus) -> Phase | None:
    """The time that a pending member has waited in a queue; None for other members."""
    if member.state != "pending":
        return None
    since = member.attempts[-1].ended if member.attempts else None
    submitted = submission.time if submission else None
    since = max((moment for moment in (since, submitted) if moment is not None), default=None)
    return None if since is None else Phase(QUEUED, since, None)


def _queued_since(
    submission: Submission | None, member: MemberStatus, attempt: AttemptStatus
) -> float | None:
    """When an attempt began to wait: at the later of its submission and the previous attempt's end."""
    if attempt.restart:  # its job was already running
        return None
    submissions = [*submission.earlier, submission] if submission else []
    began = (attempt.started or 0.0) + 1
    # Scripts record whole seconds, so round the submission down: an attempt with the same second ended later.
    times = [float(int(sub.time)) for sub in submissions if sub.time is not None and sub.time < began]
    times += [past.ended for past in member.attempts if past.attempt < attempt.attempt and past.ended]
    return max((moment for moment in times if moment < began), default=None)


def _launched(folder: Path) -> float | None:
    try:
        text = (folder / LAUNCHED).read_text(encoding="ascii").strip()
        return float(text) if text.isdecimal() and len(text) < 12 else None
    except (OSError, UnicodeDecodeError):
        return None


class HostRanks(NamedTuple):
    """One host of an attempt."""

    host: str
    ranks: range | None
    """None: not known, for example because the job's own flags distribute the ranks."""


def hosts(run: RunDirectory, member: int, attempt: int) -> list[HostRanks]:
    """The hosts of an attempt in the order of their node ranks; none if it did not start ranks.

    Raises:
        CastoffError: the plan or the attempt's start cannot be read.
    """
    folder, plan = run.path / "attempts" / f"{member}.{attempt}", run.facts()
    names = _names(folder / "hosts")
    if not names and [nodes for _, nodes in plan.layout] == [1]:  # one host, on which the script runs
        start = read(folder / "start.json", Start)
        names = [start.host] if start and start.host else []
    return placed(names, plan)


def placed(names: list[str], plan: Facts) -> list[HostRanks]:
    """The ranks of each host, according to the plan."""
    counts = [ranks for ranks, nodes in plan.layout for _ in range(nodes)]
    if plan.own_distribution or len(counts) != len(names):
        return [HostRanks(name, None) for name in names]
    placed_ranks, first = [], 0
    for name, count in zip(names, counts, strict=True):
        placed_ranks.append(HostRanks(name, range(first, first + count)))
        first += count
    return placed_ranks


def _names(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return []


_SOON = 10.0
"""Seconds within which all ranks of a program end if it ends well."""


class EarlyRank(NamedTuple):
    """A rank that ended well before the first failure, or long before others."""

    rank: int
    after: float
    """Seconds from the attempt's start."""


def early_ranks(run: RunDirectory, attempt: AttemptStatus) -> list[EarlyRank]:
    """The early ranks of an attempt that is running or failed; none if it hung, since its reason names these
    ranks.
    """
    is_hang = attempt.failure is not None and attempt.failure.reason == HANG
    if attempt.started is None or attempt.ending in ("done", "resume") or is_hang:
        return []
    logs = Path(attempt.logs)
    folder = logs.parents[1] / "attempts" / logs.name
    of_ranks, of_hosts = _ended(folder / "ended")
    ended, by_host = of_hosts or of_ranks, bool(of_hosts)
    if not ended or len(ended) in _all(run.facts(), by_host=by_host):
        return []
    until = _until(attempt, folder, by_host=by_host)
    early = (EarlyRank(rank, at - attempt.started) for rank, at in ended.items() if at < until)
    return sorted(early)


def ended_well(folder: Path) -> set[int]:
    """The ranks that have ended well, as far as that is recorded in an attempt's folder."""
    of_ranks, of_hosts = _ended(folder / "ended")
    return {*of_hosts} or {*of_ranks}


def _ended(folder: Path) -> tuple[dict[int, float], dict[int, float]]:
    """When ranks ended well, by their own files and by those of hosts, which have a line for each rank."""
    of_ranks, of_hosts = {}, {}
    with contextlib.suppress(OSError), os.scandir(folder) as names:
        for name in names:
            with contextlib.suppress(OSError, CastoffError, ValueError):
                if name.name.isdecimal():
                    of_ranks[int(name.name)] = name.stat().st_mtime
                elif name.name.startswith(("ranks-", "all-")):
                    lines = (line.split() for line in record_bytes(Path(name)).splitlines())
                    of_hosts.update({int(rank): float(at) for rank, at in lines})
    return of_ranks, of_hosts


def _all(plan: Facts, *, by_host: bool) -> set[int | None]:
    """The possible numbers of ranks that have recorded their ends after all have ended well."""
    if by_host or (plan.ranks or 0) <= PER_RANK_FILES:
        return {plan.ranks}
    return {plan.ranks, sum(nodes for _, nodes in plan.layout)}  # perhaps only the first rank of each node


def _until(attempt: AttemptStatus, folder: Path, *, by_host: bool) -> float:
    """The time before which the end of a rank is early."""
    if by_host and attempt.failure is not None and attempt.failure.time is not None:
        return attempt.failure.time  # by the hosts' clocks, as the times of the ranks
    if attempt.failure is not None:
        with contextlib.suppress(OSError):
            # Not the time in the record: the ranks' files are dated by the file server's clock, too.
            return (folder / "failure.json").stat().st_mtime
    return (attempt.ended or (time.time() if attempt.state == "running" else 0.0)) - _SOON


def early_words(early: list[EarlyRank], attempt: AttemptStatus) -> str | None:
    """A sentence such as `rank 1 ended well after 3 s, while others still run`; None if no rank is early."""
    if not early:
        return None
    first, last = (f"{max(extreme(rank.after for rank in early), 0):.0f}" for extreme in (min, max))
    ranks = f"rank{'s' * (len(early) > 1)} {cpulist([rank.rank for rank in early])}"
    others = "while others still run" if attempt.state == "running" else "while others ran on"
    if attempt.failure is not None:
        others = "before the first failure"
    return f"{ranks} ended well after {first if first == last else f'{first} to {last}'} s, {others}"
