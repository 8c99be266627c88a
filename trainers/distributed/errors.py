"""Errors of ranks that do not meet or lose each other, and how to recognise torch's."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch.distributed as dist

from castoff.trainers.configuration.fields import UserError
from castoff.trainers.distributed.health_check import Verdict

_PEERS = re.compile("connection (closed|reset|refused)|timed out|timeout|broken pipe|socket", re.IGNORECASE)

_BY_GLOO = re.compile("gloo|application timeout caused pair closure", re.IGNORECASE)
"""The latter without its name, on a rank whose connection another thread has given up."""


class DistributedError(UserError):
    """Ranks that cannot meet, or a device that is not there; the text says how to mend it."""


class RanksLost(DistributedError):
    """Others do not come to where this rank waits; the text says which, and where they were last."""

    def __init__(self, verdict: Verdict, rank: int, more: Sequence[str] = (), before: str = ""):
        self.reporting_rank = rank if verdict.reporter == -1 else verdict.reporter
        """The rank that says it in full."""
        self.is_explained = verdict.is_explained
        """Whether it comes of an error of another rank's, who then is the first to end."""
        first, *rest = verdict.lines
        super().__init__("\n".join([before + first, *(rest if self.reporting_rank == rank else ()), *more]))


def lost_peers(error: BaseException) -> bool:
    """Whether an error says that another rank is gone, or does not answer."""
    return of_a_collective(error) and (isinstance(error, dist.DistError) or bool(_PEERS.search(str(error))))


def of_a_collective(error: BaseException) -> bool:
    """The same, or that the ranks are at different places: gloo finds a message that is not for it."""
    by_gloo = isinstance(error, RuntimeError) and _BY_GLOO.search(str(error)) is not None
    return by_gloo or isinstance(error, dist.DistError)
