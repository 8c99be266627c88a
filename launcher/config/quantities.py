"""Convert durations, memory sizes and CPU lists of job and site files to numbers and back."""

from __future__ import annotations

import re
from collections.abc import Sequence

# [0-9], because \d matches the digits of all writing systems. END, because $ alone also matches before a
# final line break; not \Z, because the regular expressions of JSON schemas, which contain these patterns,
# lack it.
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

_CPUS = "[0-9]{1,4}(?:-[0-9]{1,4})?"  # Linux supports at most 8192 CPUs
_CPULIST = rf"{_CPUS}(?:,{_CPUS})*"
CPULIST_PATTERN = rf"^{_CPULIST}{END}"
CPULISTS_PATTERN = rf"^{_CPULIST}(?::{_CPULIST})*{END}"


def seconds(duration: str) -> int:
    """The seconds of a duration that matches `DURATION_PATTERN`."""
    match = _CLOCK.fullmatch(duration) or _UNITS.fullmatch(duration)
    if match is None or not duration:
        raise ValueError(f"{duration!r} is not {DURATION_TAKES}")
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def timeout(text: str) -> float:
    """The seconds of a duration, in which a number without a unit is one of seconds.

    Raises:
        ValueError: the text is neither.
    """
    plain = re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{0,9})?", text)
    return float(text) if plain else float(seconds(text))


def signal_and_time(text: str) -> tuple[str, int]:
    """Split a text that matches `SIGNAL_PATTERN` into the signal's name without SIG, and seconds."""
    name, _, before = text.removeprefix("SIG").partition("@")
    return name, int(before) if before.isdecimal() else seconds(before)


def size(memory: str) -> int:
    """The bytes of a size that matches `MEMORY_PATTERN`."""
    return int(memory[:-1]) << 10 * ("KMGT".index(memory[-1]) + 1)


def clock(total: int) -> str:
    """Seconds as `HH:MM:SS`, with as many hours as needed, which both Slurm and PBS read."""
    hours, rest = divmod(total, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def units(total: int) -> str:
    """A number of seconds as a duration in a profile: `45m`, `24h`, `90s`."""
    if total and total % 3600 == 0:
        return f"{total // 3600}h"
    return f"{total // 60}m" if total and total % 60 == 0 else f"{total}s"


def cpus(cpulist: str) -> list[int]:
    """The numbers in a list that matches `CPULIST_PATTERN`: `0-2,7` gives [0, 1, 2, 7]."""
    numbers: list[int] = []
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def descending(cpulist: str) -> str | None:
    """The first descending range of a CPU list, which would contain no cores; None if there is none."""
    for part in cpulist.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            return part
    return None


def cpulist(numbers: Sequence[int]) -> str:
    """Ascending numbers as a CPU list: [0, 1, 2, 7] gives `0-2,7`."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            first, last = numbers[start], numbers[end - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            start = end
    return ",".join(parts)
