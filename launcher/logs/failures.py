"""Finds the rank of an attempt that failed first, and the part of its log that shows why: its last traceback,
or its last lines.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.text.excerpt import excerpt, left_out, shortened
from castoff.launcher.text.failure import HANG

_LOOK_BACK = 4 * 1024 * 1024
"""Number of bytes at the end of a log that are searched."""

_STACK = 60  # lines shown of a rank's stacks


class FailedRank(NamedTuple):
    """The rank of an attempt that failed first."""

    failure: Failure
    log: Path | None
    """The rank's log; None if it is unknown which rank failed, or if it has no log."""
    reason: str | None = None
    """The reason that the attempt's record gives."""
    stacks: Path | None = None
    """The folder with the stacks of all ranks, if none failed and all hung."""

    @property
    def time(self) -> float:
        """When the rank failed, in seconds since the epoch."""
        return self.failure.time or 0.0

    @property
    def stack(self) -> Path | None:
        """The file with the stack of a rank that hung, if it wrote one; that of rank 0 if no rank differs."""
        stack = None if self.stacks is None else self.stacks / f"rank-{self.failure.rank or 0:05d}.txt"
        return stack if stack is not None and stack.is_file() and stack.stat().st_size else None

    def excerpt(self) -> list[bytes]:
        """The lines that show why the rank failed: from its log, or from its stack if it hung and wrote one.
        A stopped process writes no stack; then the stacks of the other ranks show what they wait for.
        """
        if self.stack is not None:
            lines = _stack_lines(self.stack)
        else:
            lines = [] if self.log is None else excerpt_of(self.log, self.failure.rank)
        if self.stacks is not None and names_in(self.stacks):
            lines.append(f"all ranks' stacks: {self.stacks}".encode(errors="surrogateescape"))
        return lines


def failed_rank(run: RunDirectory, member: int, attempt: AttemptStatus) -> FailedRank | None:
    """The rank of an attempt that failed first or, if all hang, differs from the others; None if unknown."""
    failure = attempt.failure
    if failure is None:
        return None
    logs = run.log_folder / f"{member}.{attempt.attempt}"
    stacks = logs / "stacks" if failure.reason == HANG else None
    name = failure.log
    if name is None and failure.rank is not None:
        name = f"rank-{failure.rank:05d}.log"
    log = None if name is None or "/" in name or not (logs / name).is_file() else logs / name
    return FailedRank(failure, log, attempt.reason, stacks)


def _stack_lines(stack: Path) -> list[bytes]:
    """The lines of a rank's stacks."""
    with stack.open("rb") as file:
        lines = [shortened(line) for line in file.read(_LOOK_BACK).splitlines()]
    left = len(lines) - _STACK
    if left > 0:
        lines = [*lines[:_STACK], left_out(f"{left}", str(stack))]
    return lines


def excerpt_of(log: Path, rank: int | None = None) -> list[bytes]:
    """The lines of a log that show why a rank failed. `rank`: the rank, if several may write to the log."""
    with log.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _LOOK_BACK)
        file.seek(begin)
        return excerpt(file.read(_LOOK_BACK), str(log), cut=begin > 0, rank=rank)
