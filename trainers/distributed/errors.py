"""Errors of ranks that cannot connect or lose each other, and how to recognise torch's."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch.distributed as dist

from castoff.trainers.configuration.fields import UserError
from castoff.trainers.distributed.health_check import Verdict

_PEERS = re.compile("connection (closed|reset|refused)|timed out|timeout|broken pipe|socket", re.IGNORECASE)

_BY_GLOO = re.compile("gloo|application timeout caused pair closure", re.IGNORECASE)
"""Also gloo's message without its name, on a rank whose connection another thread has closed."""


class DistributedError(UserError):
    """Ranks cannot connect, or a device is missing; the text has the remedy."""


class RanksLost(DistributedError):
    """Other ranks do not reach the point where this rank waits; the text names them and what they do."""

    def __init__(self, verdict: Verdict, rank: int, more: Sequence[str] = (), before: str = ""):
        self.reporting_rank = rank if verdict.reporter == -1 else verdict.reporter
        """The rank that reports the full text."""
        self.is_explained = verdict.is_explained
        """Whether another rank's error is the cause; that rank then exits first."""
        first, *rest = verdict.lines
        super().__init__("\n".join([before + first, *(rest if self.reporting_rank == rank else ()), *more]))


def lost_peers(error: BaseException) -> bool:
    """Whether an error means that another rank is gone, or does not respond."""
    return of_a_collective(error) and (isinstance(error, dist.DistError) or bool(_PEERS.search(str(error))))


def of_a_collective(error: BaseException) -> bool:
    """Whether an error comes from a collective; gloo's error when ranks call different collectives counts,
    too.
    """
    by_gloo = isinstance(error, RuntimeError) and _BY_GLOO.search(str(error)) is not None
    return by_gloo or isinstance(error, dist.DistError)
