"""Connects the threads that write a checkpoint: each rank's writes its shards, and they succeed together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

import torch.distributed as dist

from castoff.trainers.distributed.process_group import portable

Result = TypeVar("Result")

_PATIENCE = timedelta(minutes=30)
"""How long a rank's thread waits for those of others, as while a slow disk is written. If a rank ends, the
others get an error at once; how long training waits for them is the watchdog's to decide."""


class Writers(Protocol):
    """The processes that write a checkpoint."""

    group: dist.ProcessGroup | None
    """Their process group; None: there is one process."""
    is_main: bool
    """Whether this is the one that begins and completes the checkpoint."""

    def together(self, work: Callable[[], Result]) -> list[Result]:
        """Call `work` on each, and return all results; if it fails on one, all raise that error."""
        ...


class Alone:
    """A process that writes checkpoints by itself."""

    group: dist.ProcessGroup | None = None
    is_main = True

    def together(self, work: Callable[[], Result]) -> list[Result]:
        """Call `work`."""
        return [work()]


class AllRanks:
    """All ranks of the process group. Each must make one, in its main thread.

    They have a gloo group of their own, since collectives of two threads must not mix in one group.
    """

    def __init__(self) -> None:
        self.group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self.is_main = dist.get_rank() == 0

    def together(self, work: Callable[[], Result]) -> list[Result]:
        """Call `work` on each rank, and return all results; if it fails on any, all raise the error of the
        first of these.
        """
        result: Result | None = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as met:  # noqa: BLE001 - raised on all ranks
            error = met
        every: list[tuple[Result, Exception | None]] = [(None, None)] * dist.get_world_size()  # type: ignore[list-item]
        dist.all_gather_object(every, (result, None if error is None else portable(error)), group=self.group)
        for rank, (_, theirs) in enumerate(every):
            if theirs is not None:
                raise of_rank(rank, theirs)
        return [each for each, _ in every]


def of_rank(rank: int, error: Exception) -> Exception:
    """The error of a rank, marked with its number, which all report."""
    vars(error)["reporting_rank"] = rank  # its log has the traceback
    return error
