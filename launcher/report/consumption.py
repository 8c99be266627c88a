"""What jobs used of what they had, as a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config.quantities import brief, size_words
from launcher.report.facts import RunFacts
from launcher.report.tables import Table, table
from launcher.runs.records import Usage


def resources(facts: RunFacts) -> Table | None:
    """What jobs used of what they had; of several, what they come to together first."""
    used = [(one.words, one.usage) for member in facts.members for one in member.attempts if one.usage]
    if not used:
        return None
    if len(used) > 1:
        used = [("all", together([usage for _, usage in used])), *used]
    headings = ("job up to attempt", "took", "CPUs", "CPU use", "memory", "device use", "by")
    return table("Resources used", headings, [_usage(*one) for one in used], *headings[1:-1])


def misses_ranks(facts: RunFacts) -> bool:
    """Whether what reports the resources may not see all ranks, as PBS without its cgroups hook."""
    return any(
        one.usage and one.usage.source == "qstat" for member in facts.members for one in member.attempts
    )


def together(used: Sequence[Usage]) -> Usage:
    """What several jobs used: sums of time, the most memory, and the mean use of devices by time.

    Its CPUs are the mean by time, so that the product with the time is what all of them had.
    """
    timed = [one for one in used if one.elapsed and one.cpus is not None and one.cpu_seconds is not None]
    elapsed = sum(one.elapsed or 0.0 for one in timed)
    had = sum((one.elapsed or 0.0) * (one.cpus or 0) for one in timed)
    busy = [
        (one.elapsed or 1.0, one.device_utilization) for one in used if one.device_utilization is not None
    ]
    fullest = max(used, key=lambda one: one.memory or 0)
    return Usage(
        source=", ".join(dict.fromkeys(one.source for one in used)),
        elapsed=elapsed or None,
        cpu_seconds=sum(one.cpu_seconds or 0.0 for one in timed) if timed else None,
        cpus=round(had / elapsed) if elapsed else None,
        memory=fullest.memory,
        memory_requested=fullest.memory_requested,
        device_utilization=sum(time * part for time, part in busy) / sum(time for time, _ in busy)
        if busy
        else None,
    )


def _usage(words: str, usage: Usage) -> Sequence[str]:
    had = (usage.elapsed or 0.0) * (usage.cpus or 0)
    cpu = f"{usage.cpu_seconds / had:.0%}" if usage.cpu_seconds is not None and had else ""
    memory = "" if usage.memory is None else size_words(usage.memory)
    if memory and usage.memory_requested:
        memory += f" of {size_words(usage.memory_requested)}"
    return (
        words,
        "" if usage.elapsed is None else brief(usage.elapsed),
        "" if usage.cpus is None else str(usage.cpus),
        cpu,
        memory,
        "" if usage.device_utilization is None else f"{usage.device_utilization:.0%}",
        usage.source,
    )
