"""Reads what jobs used, as PBS reports it: `resources_used` in qstat's answer.

pbs_job_attributes(7B) and pbs_resources(7B) of OpenPBS 23. Without PBS's cgroups hook, pbs_mom takes samples,
and sees only sessions that it started. It misses root's jobs and, until they end, ranks in new sessions of
mpiexec, such as Hydra's. Seen on OpenPBS cd7ab5e.
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
    """Read what each job in qstat's answer used, if the job has begun; an incomplete entry is skipped.

    `jobs`: read only the entries of these ids, as they were passed to qstat (default: all).
    """
    usages = []
    for name, attributes in blocks(page, jobs):
        job = placed(name)
        if job is None or not any(key.startswith("resources_used.") for key in attributes):
            continue
        used = {key.removeprefix("resources_used."): value for key, value in attributes.items()}
        usage = Usage(
            source="qstat",
            elapsed=_seconds(used.get("walltime")),
            # 0 if pbs_mom has seen nothing.
            cpu_seconds=_seconds(used.get("cput")) or None,
            cpus=whole(used.get("ncpus")),
            memory=_bytes(used.get("mem")) or None,
            memory_requested=_bytes(attributes.get("Resource_List.mem")),
        )
        usages.append(JobUsage(*job, time_of(attributes.get("stime")), usage))
    return usages


def _bytes(text: str | None) -> int | None:
    """Read a size such as `5124kb`, in bytes."""
    match = re.fullmatch(r"(\d{1,15})([kmgtp]?b)", text or "")
    return int(match[1]) * _UNITS[match[2]] if match else None


def _seconds(text: str | None) -> float | None:
    """Read a duration such as `26:03:04`, in seconds."""
    match = re.fullmatch(r"(\d{1,7}):(\d{2}):(\d{2})", text or "")
    return None if match is None else (int(match[1]) * 60 + int(match[2])) * 60 + float(match[3])
