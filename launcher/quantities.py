"""Durations, memory sizes and CPU lists: text of a job or site file to numbers and back."""

from __future__ import annotations

import re

_CLOCK = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)")
_UNITS = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?")

DURATION_PATTERN = rf"^(?:{_CLOCK.pattern}|(?=\d){_UNITS.pattern})$"
DURATION_TAKES = 'a duration: "HH:MM:SS", "D-HH:MM:SS" or with units, as in 90s, 30m, 2h or 1d12h'

MEMORY_PATTERN = r"^[1-9]\d{0,9}[KMGT]$"
MEMORY_TAKES = "a size with a unit K, M, G or T (powers of 1024), as in 64G"

CPULIST_PATTERN = r"^\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*$"


def seconds(duration: str) -> int:
    """Seconds of a duration that matches `DURATION_PATTERN`."""
    clock = _CLOCK.fullmatch(duration)
    match = clock or _UNITS.fullmatch(duration)
    if match is None or not duration:
        raise ValueError(f"{duration!r} is not {DURATION_TAKES}")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def clock(total: int) -> str:
    """`HH:MM:SS`, the hours as many as there are: what Slurm and PBS both read."""
    hours, rest = divmod(total, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def cpus(cpulist: str) -> list[int]:
    """`0-2,7` as [0, 1, 2, 7]."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def cpulist(numbers: list[int]) -> str:
    """[0, 1, 2, 7] as `0-2,7`; the numbers ascend."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            first, last = numbers[start], numbers[end - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = end
    return ",".join(parts)
