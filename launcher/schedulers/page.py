"""A command's output as it arrives, so that a reader does not need to keep all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Page = Iterator[str]
"""The parts of an output; a part may end anywhere, even within a line."""

Wanted = Callable[[str, str], bool]
"""Takes a job's id, and its script's path or submit command; returns whether the job is wanted: a user may
have a million other jobs.
"""

LONGEST_RECORD = 16 << 20
"""The longest record of a single job that castoff accepts from a scheduler, in characters; a job on 10,000
nodes needs about one million.
"""


class Unreadable(Exception):
    """A command's output is too long to come from a scheduler; the text describes it."""


def everything(_job: str, _script: str) -> bool:
    """Select all jobs."""
    return True


def records(page: Page, end: str) -> Iterator[str]:
    """Yield the text before each `end`; text after the last `end` was cut off, and is dropped.

    Raises:
        Unreadable: a record is longer than `LONGEST_RECORD`.
    """
    rest = ""
    for part in page:
        *whole, rest = (rest + part).split(end)
        yield from whole
        check_length(rest)


def check_length(record: str) -> None:
    """Check that a record that has not ended yet is not too long.

    Raises:
        Unreadable: the record is longer than `LONGEST_RECORD`.
    """
    if len(record) > LONGEST_RECORD:
        raise Unreadable(f"more than {LONGEST_RECORD >> 20} MiB that are not one job's")
