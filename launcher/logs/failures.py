"""The rank of an attempt that failed first, and what its log says about it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from launcher.logs.excerpt import LOOK_BACK, excerpt
from launcher.runs.records import Failure
from launcher.runs.run import Run
from launcher.runs.states import AttemptStatus

_ROOM = 64 * 1024
"""Bytes: where fewer are left, what was written last may have found no room."""


class FailedRank(NamedTuple):
    """The first rank of an attempt that failed."""

    failure: Failure
    log: Path | None
    """None where nobody knows which rank it was, or it has no log."""

    def excerpt(self) -> list[bytes]:
        """The lines of its log that tell why; none where there is no log."""
        if self.log is None:
            return []
        text, cut = _end(self.log, LOOK_BACK)
        return excerpt(text, str(self.log), cut=cut, rank=self.failure.rank)

    def last_lines(self, count: int) -> bytes:
        """The last lines of its log."""
        text = b"" if self.log is None else _end(self.log, LOOK_BACK)[0]
        return b"".join(line + b"\n" for line in text.splitlines()[-count:])


def failed_rank(run: Run, member: int, attempt: AttemptStatus) -> FailedRank | None:
    """The rank of an attempt that failed first; None where none is known to have."""
    if attempt.failure is None:
        return None
    name = attempt.failure.log
    if name is None and attempt.failure.rank is not None:
        name = f"rank-{attempt.failure.rank:05d}.log"
    if name is None or "/" in name:
        return FailedRank(attempt.failure, None)
    log = run.logs / f"{member}.{attempt.attempt}" / name
    return FailedRank(attempt.failure, log if log.is_file() else None)


def lacking(run: Run, attempts: Collection[tuple[int, AttemptStatus]]) -> str | None:
    """Why the logs of attempts, with their members, may lack their end: the disk is, or was, full."""
    for member, attempt in attempts:
        record = run.path / "attempts" / f"{member}.{attempt.attempt}" / "failure.json"
        with contextlib.suppress(OSError):
            if record.stat().st_size == 0:  # it was made, and there was no room for a word in it
                return (
                    f"{run.path}: the disk was full when a rank of {member}.{attempt.attempt} failed: "
                    "nobody could write down which, and the logs may lack what came last"
                )
    if any(attempt.ending != "done" for _, attempt in attempts):
        with contextlib.suppress(OSError):
            room = os.statvfs(run.path)
            if room.f_bavail * room.f_frsize < _ROOM or (room.f_files and not room.f_favail):
                return f"{run.path}: the disk is full, so the logs may lack what came last"
    return None


def _end(path: Path, size: int) -> tuple[bytes, bool]:
    """A file's end, and whether that is not all of it."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - size)
        file.seek(begin)
        return file.read(size), begin > 0
