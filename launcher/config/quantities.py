"""Durations, memory sizes and CPU lists: text of job and site files to numbers and back."""

from __future__ import annotations

import re
from collections.abc import Sequence

# [0-9], for \d takes every script's digits. END, for a $ alone also stands before a last line break;
# \Z would not do, because these patterns go into the JSON schema, whose dialect lacks it.
END = r"$(?!\n)"

_CLOCK = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])")
_UNITS = re.compile(r"(?:([0-9]{1,5})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?")

DURATION_PATTERN = rf"^(?:{_CLOCK.pattern}|(?=[0-9]){_UNITS.pattern}){END}"
DURATION_TAKES = 'a duration: "HH:MM:SS", "D-HH:MM:SS" or with units, as in 90s, 30m, 2h or 1d12h'

SIGNAL_PATTERN = rf"^(?:SIG)?(?:USR1|USR2|TERM|INT|HUP)@(?:[0-9]{{1,6}}|(?=[0-9]){_UNITS.pattern}){END}"
SIGNAL_TAKES = (
    "a signal (USR1, USR2, TERM, INT or HUP) and a time before the walltime, as in USR1@300 or TERM@5m"
)

MEMORY_PATTERN = rf"^[1-9][0-9]{{0,9}}[KMGT]{END}"
MEMORY_TAKES = "a size with a unit K, M, G or T (powers of 1024), as in 64G"

_CPUS = "[0-9]{1,4}(?:-[0-9]{1,4})?"  # Linux knows no more than 8192 of them
_CPULIST = rf"{_CPUS}(?:,{_CPUS})*"
CPULIST_PATTERN = rf"^{_CPULIST}{END}"
CPULISTS_PATTERN = rf"^{_CPULIST}(?::{_CPULIST})*{END}"


def seconds(duration: str) -> int:
    """Seconds of a duration that matches `DURATION_PATTERN`."""
    match = _CLOCK.fullmatch(duration) or _UNITS.fullmatch(duration)
    if match is None or not duration:
        raise ValueError(f"{duration!r} is not {DURATION_TAKES}")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def signal_and_time(text: str) -> tuple[str, int]:
    """A signal's name without SIG, and seconds, of a text that matches `SIGNAL_PATTERN`."""
    name, _, before = text.removeprefix("SIG").partition("@")
    return name, int(before) if before.isdecimal() else seconds(before)


def size(memory: str) -> int:
    """Bytes of a size that matches `MEMORY_PATTERN`."""
    return int(memory[:-1]) << 10 * ("KMGT".index(memory[-1]) + 1)


def clock(total: int) -> str:
    """`HH:MM:SS`, the hours as many as there are: what Slurm and PBS both read."""
    hours, rest = divmod(total, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def units(total: int) -> str:
    """A duration as people write it in a profile: `45m`, `24h`, `90s`."""
    if total and total % 3600 == 0:
        return f"{total // 3600}h"
    return f"{total // 60}m" if total and total % 60 == 0 else f"{total}s"


def cpus(cpulist: str) -> list[int]:
    """`0-2,7` as [0, 1, 2, 7]: a list that matches `CPULIST_PATTERN`."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def descending(cpulist: str) -> str | None:
    """The first descending range of a CPU list, which would name no cores at all; None: there is none."""
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            return part
    return None


def cpulist(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 7] as `0-2,7`; the numbers ascend."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            first, last = numbers[start], numbers[end - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = end
    return ",".join(parts)
