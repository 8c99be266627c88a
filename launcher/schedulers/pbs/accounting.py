"""What jobs used, as PBS reports it: `resources_used` in qstat's answer.

pbs_job_attributes(7B) and pbs_resources(7B) of OpenPBS 23. Without PBS's cgroups hook, a mom looks now
and then, and sees only the sessions that it started: not root's jobs, and not ranks for which mpiexec made
sessions of their own, as Hydra does, until they are over. Seen on OpenPBS cd7ab5e.
"""

from __future__ import annotations

import re
from collections.abc import Container

from castoff.launcher.runs.records import Usage
from castoff.launcher.schedulers.job_info import JobUsage, whole
from castoff.launcher.schedulers.page import Page
from castoff.launcher.schedulers.pbs.jobs import blocks, placed, time_of

_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb", "pb"))}


def parse_usage(page: Page, jobs: Container[str] | None = None) -> list[JobUsage]:
    """What each job in qstat's answer used, if it has begun; an answer that was cut off says nothing.

    `jobs`: those alone, whose ids qstat was given (default: all).
    """
    found = []
    for name, held in blocks(page, jobs):
        place = placed(name)
        if place is None or not any(key.startswith("resources_used.") for key in held):
            continue
        used = {key.removeprefix("resources_used."): value for key, value in held.items()}
        usage = Usage(
            source="qstat",
            elapsed=_seconds(used.get("walltime")),
            # Where the mom has seen nothing, all is 0.
            cpu_seconds=_seconds(used.get("cput")) or None,
            cpus=whole(used.get("ncpus")),
            memory=_bytes(used.get("mem")) or None,
            memory_requested=_bytes(held.get("Resource_List.mem")),
        )
        found.append(JobUsage(*place, time_of(held.get("stime")), usage))
    return found


def _bytes(text: str | None) -> int | None:
    """`5124kb` in bytes."""
    found = re.fullmatch(r"(\d{1,15})([kmgtp]?b)", text or "")
    return int(found[1]) * _UNITS[found[2]] if found else None


def _seconds(text: str | None) -> float | None:
    """`26:03:04` in seconds."""
    found = re.fullmatch(r"(\d{1,7}):(\d{2}):(\d{2})", text or "")
    return None if found is None else (int(found[1]) * 60 + int(found[2])) * 60 + float(found[3])
