"""The rank of an attempt that failed first, and what its log says about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from launcher.logs.excerpt import LOOK_BACK, excerpt
from launcher.runs.records import Failure
from launcher.runs.run import Run
from launcher.runs.states import AttemptStatus


class FailedRank(NamedTuple):
    """The first rank of an attempt that failed."""

    failure: Failure
    log: Path | None
    """None where nobody knows which rank it was, or it has no log."""

    @property
    def time(self) -> float:
        """When it failed, to tell which was the first."""
        return self.failure.time or 0.0

    def excerpt(self) -> list[bytes]:
        """The lines of its log that tell why; none where there is no log."""
        return [] if self.log is None else excerpt_of(self.log, self.failure.rank)


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


def excerpt_of(log: Path, rank: int | None = None) -> list[bytes]:
    """The lines of a log that tell why a rank failed; `rank`: which one, where several may share it."""
    with log.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - LOOK_BACK)
        file.seek(begin)
        return excerpt(file.read(LOOK_BACK), str(log), cut=begin > 0, rank=rank)
