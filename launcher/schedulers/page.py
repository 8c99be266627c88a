"""What a command prints, as it arrives: no reader holds all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Page = Iterator[str]
"""The parts in which it arrives, which end anywhere."""

Wanted = Callable[[str, str], bool]
"""Whether a job is of use, by its id and its script's path or the command that submitted it: what else a
user has may be a million jobs."""

LONGEST_RECORD = 16 << 20
"""The longest record of one job that is accepted from a scheduler, in characters; a job on 10,000 nodes
needs about one million."""


class Unreadable(Exception):
    """A page that cannot come from a scheduler; the text is what a command printed."""


def everything(_job: str, _script: str) -> bool:
    """All jobs are wanted."""
    return True


def records(page: Page, end: str) -> Iterator[str]:
    """What is before each `end`; the rest after the last one was cut off.

    Raises:
        Unreadable: one of them is longer than any can be.
    """
    rest = ""
    for part in page:
        *whole, rest = (rest + part).split(end)
        yield from whole
        check_length(rest)


def check_length(record: str) -> None:
    """Make sure that a record that has not ended may still do so.

    Raises:
        Unreadable: it is too long.
    """
    if len(record) > LONGEST_RECORD:
        raise Unreadable(f"more than {LONGEST_RECORD >> 20} MiB that are not one job's")
