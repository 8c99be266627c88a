"""Asks Slurm's accounting what jobs used: the sacct command, and how castoff reads the answer.

https://slurm.schedmd.com/sacct.html (TotalCPU, ReqMem, TRESUsageInTot, TRESUsageInAve); seen on 22.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from castoff.launcher.runs.records import Usage
from castoff.launcher.schedulers.job_info import JobUsage, whole
from castoff.launcher.schedulers.page import Page, Wanted, everything
from castoff.launcher.schedulers.slurm.jobs import lines

_FIELDS = (
    *("JobID", "Start", "ElapsedRaw", "AllocCPUS", "NNodes", "ReqMem"),
    *("TotalCPU", "MaxRSS", "TRESUsageInTot", "TRESUsageInAve"),
)

_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}


class _Line(NamedTuple):
    """One line of sacct's answer: a start of a job, or one of the steps of that start, which follow."""

    job: str
    start: str
    elapsed: str
    cpus: str
    nodes: str
    requested: str
    cpu: str
    largest: str
    total: str
    average: str

    @property
    def memory(self) -> int | None:
        """The number of bytes used by all tasks; if Slurm reports no total, by the largest task."""
        return _bytes(_resource(self.total, "mem")) or _bytes(self.largest)

    @property
    def device_utilization(self) -> float | None:
        """The mean utilization of devices over the tasks, as a fraction."""
        percent = _resource(self.average, "gres/gpuutil")
        return min(float(percent) / 100, 1.0) if percent and re.fullmatch(r"\d{1,5}", percent) else None


def usage_command(jobs: Iterable[str]) -> list[str]:
    """Return the sacct command for what every start of these jobs used, with steps, since only steps report
    memory.
    """
    fields = ",".join(_FIELDS)
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--duplicates",
        f"--format={fields}",
        f"--jobs={','.join(jobs)}",
    ]


class _Start:
    """A start of a job, and the totals of its steps; a start may have a million steps."""

    def __init__(self, line: _Line):
        self.line = line
        self.memory = 0
        """The largest number of bytes that a step used."""
        self.largest: _Line | None = None
        """The step with the most CPU time."""
        self._longest = -1.0

    def add(self, step: _Line) -> None:
        """Add the next step of this start."""
        self.memory = max(self.memory, step.memory or 0)
        seconds = _seconds(step.cpu) or 0.0
        if seconds > self._longest:
            self.largest, self._longest = step, seconds


def parse_usage(page: Page, wanted: Wanted = everything) -> list[JobUsage]:
    """Read what each start of a job used, in the order of sacct's answer; incomplete lines are skipped."""
    usages: list[JobUsage | None] = []
    start: _Start | None = None
    for line in (_Line(*words) for words in lines(page, _FIELDS)):
        base, step, _ = line.job.partition(".")
        if step:
            if start is not None and start.line.job == base:
                start.add(line)
            continue
        if start is not None:
            usages.append(_usage(start))
        start = _Start(line) if wanted(base.partition("_")[0], "") else None
    if start is not None:
        usages.append(_usage(start))
    return [usage for usage in usages if usage is not None]


def _usage(start: _Start) -> JobUsage | None:
    line, largest = start.line, start.largest
    number, _, index = line.job.partition("_")
    began = re.fullmatch(r"\d{1,11}", line.start)  # with SLURM_TIME_FORMAT=%s, Slurm writes seconds
    if not number.isdecimal() or (index and not index.isdecimal()) or began is None:
        return None  # a part of a heterogeneous job, or a job that never began
    nodes, cpus = whole(line.nodes), whole(line.cpus)
    usage = Usage(
        source="sacct",
        elapsed=whole(line.elapsed),
        # 0 if no plugin gathers it.
        cpu_seconds=_seconds(line.cpu) or None,
        cpus=cpus,
        memory=start.memory or None,
        memory_requested=_requested(line.requested, nodes, cpus),
        device_utilization=largest.device_utilization if largest else None,
    )
    return JobUsage(number, int(index) if index else None, float(began[0]), usage)


def _requested(text: str, nodes: int | None, cpus: int | None) -> int | None:
    """Read ReqMem, as the bytes of the whole job; before 21.08, a final n means for each node, and c for each
    CPU.
    """
    times = {"n": nodes, "c": cpus}.get(text[-1:], 1)
    size = _bytes(text.rstrip("nc"))
    return size * times if size and times else None


def _resource(text: str, name: str) -> str | None:
    """Return the value of one resource in a text such as `cpu=00:00:01,mem=5124K,…`."""
    return dict(pair.partition("=")[::2] for pair in text.split(",")).get(name)


def _bytes(text: str | None) -> int | None:
    """Read a size such as `5124K`, `1.50G` or `0`, in bytes."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)", text or "")
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def _seconds(text: str) -> float | None:
    """Read a duration such as `1-02:03:04`, `02:03:04` or `03:04.567`, in seconds."""
    match = re.fullmatch(r"(?:(?:(\d{1,5})-)?(\d{1,5}):)?(\d{1,5}):(\d{2}(?:\.\d{1,6})?)", text)
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])
