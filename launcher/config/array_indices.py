"""Convert the indices of an array's members, such as `1,3-5,10-20:2`, to numbers and back. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from castoff.launcher.config.quantities import END

LARGEST_INDEX = 4_000_000
"""The largest index that Slurm can be configured to accept (MaxArraySize, slurm.conf(5))."""

MOST_MEMBERS = 1_000_000
"""Limit of an array's members, above that of any scheduler."""

_NUMBER = "(?:0|[1-9][0-9]{0,6})"
_PART = rf"{_NUMBER}(?:-{_NUMBER}(?::[1-9][0-9]{{0,6}})?)?"
INDICES_PATTERN = rf"^{_PART}(?:,{_PART})*{END}"
"""A pattern for the texts that `index_list` writes."""


def indices(text: str) -> list[int]:
    """The indices in a valid text, ascending and without duplicates."""
    return sorted({index for part in _parts(text) for index in _range(part)})


def index_list(numbers: Sequence[int]) -> str:
    """Ascending numbers as schedulers write them: [1, 3, 4, 5, 10, 12, 14] becomes `1,3-5,10-14:2`."""
    return ",".join(_written(run) for run in runs(numbers))


def members_range(numbers: Sequence[int]) -> str:
    """The numbers of members in words: `0 to 7`, or `1,3-5,10-20:2` if some are missing."""
    return f"0 to {numbers[-1]}" if numbers[-1] == len(numbers) - 1 else index_list(numbers)


def runs(numbers: Sequence[int]) -> list[range]:
    """Split ascending numbers into ranges of consecutive numbers, or of three or more numbers at equal
    distances.
    """
    ranges: list[range] = []
    start = 0
    while start < len(numbers):
        end = start + 1
        step = numbers[end] - numbers[start] if end < len(numbers) else 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if step > 1 and end - start < 3:
            end, step = start + 1, 1
        ranges.append(range(numbers[start], numbers[end - 1] + 1, step))
        start = end
    return ranges


def problem(text: str) -> str | None:
    """What is wrong with a text of indices; None if they are valid."""
    members = 0
    for part in _parts(text):
        if wrong := _wrong(part, text):
            return wrong
        members += len(_range(part))
    if members > MOST_MEMBERS:
        return f"has {members} members, but an array can have at most {MOST_MEMBERS}"
    return None


def _wrong(part: str, text: str) -> str | None:
    if not part:
        fixed = ",".join(filter(None, _parts(text))) or "0-9"
        return f"is {text!r}, with nothing before, after or between commas: write {fixed}"
    if "%" in text:
        indices, _, most = text.partition("%")
        also = f" and array.max_concurrent: {most}" if most.isdigit() else ""
        return f"is {text!r}, but takes no %: write {indices}{also}"
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", part)
    if match is None:
        if dots := re.fullmatch(r"(\d+) ?(?:\.\.+|to) ?(\d+)", part):
            return f"holds {part!r}, but a range has a hyphen: write {dots[1]}-{dots[2]}"
        lower = ", none below 0" if part.startswith("-") else ""
        return f"holds {part!r}, but takes numbers and ranges{lower}, joined by commas, as in 1,3-5,10-20:2"
    for number in filter(None, match.groups()):
        if len(number) > 1 and number.startswith("0"):
            shown = f"in the program, printf %0{len(number)}d $CASTOFF_ARRAY_INDEX pads it"
            return f"holds {number}, but an index is a plain number: write {int(number)}; {shown}"
    first, last, step = (int(number or 0) for number in match.groups())
    if match[3] is not None and step == 0:
        return f"holds {part}, a step of 0: write {first}-{last}, or the step that is meant"
    if match[2] is not None and last < first:
        ascending = f"{last}-{first}" + (f":{step}" if step else "")
        return f"holds {part}, which descends: write {ascending}"
    if max(first, last, step) > LARGEST_INDEX:
        return f"holds {part}, but an index can be at most {LARGEST_INDEX}"
    return None


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _range(part: str) -> range:
    span, _, step = part.partition(":")
    first, _, last = span.partition("-")
    return range(int(first), int(last or first) + 1, int(step or 1))


def _written(run: range) -> str:
    if len(run) == 1:
        return str(run[0])
    return f"{run[0]}-{run[-1]}" + (f":{run.step}" if run.step > 1 else "")
