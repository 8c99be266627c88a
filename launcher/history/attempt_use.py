"""What an attempt uses, from its samples and from what its program reports, with advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.progress import data_wait
from castoff.launcher.history.use import NodeUse, Use, use_of, use_words
from castoff.launcher.history.use_advice import advice
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus


class AttemptUse(msgspec.Struct, frozen=True):
    """What an attempt uses."""

    use: Use
    data_wait: float | None
    """The fraction of the time in which the program waits for data, if it reports that."""
    advice: str
    """A sentence; empty if nothing is plain."""

    @property
    def words(self) -> str:
        """What it uses in one line."""
        return use_words(self.use, self.data_wait)

    @property
    def facts(self) -> dict[str, Any]:
        """All of it as JSON."""
        facts: dict[str, Any] = msgspec.to_builtins(self.use)
        return {**facts, "data_wait": self.data_wait, "advice": self.advice}


def attempt_use(
    run: RunDirectory, member: int, attempt: AttemptStatus, read: Callable[[], Metrics | None]
) -> AttemptUse | None:
    """What an attempt of a member uses; None if it recorded nothing. `read`: reads the member's metrics.

    Raises:
        CastoffError: a record cannot be read.
    """
    use = use_of(run, member, attempt.attempt)
    if use is None:
        return None
    metrics = read()
    waits = data_wait(metrics, attempt.started or 0.0, attempt.ended) if metrics else None
    return with_advice(use, run.facts(), waits)


def with_advice(use: Use, planned: Facts, waits: float | None) -> AttemptUse:
    """Add advice to a use, without the GPUs of the nodes that are not the job's."""
    use = with_own_devices(use, planned)
    return AttemptUse(use, waits, advice(use, planned, waits))


def with_own_devices(use: Use, planned: Facts) -> Use:
    """A use without the GPUs of the nodes that are not the job's."""
    asked = planned.devices_per_rank * max((ranks for ranks, _ in planned.layout), default=1)
    return msgspec.structs.replace(use, nodes=[_with_own_devices(node, asked) for node in use.nodes])


def _with_own_devices(node: NodeUse, asked: int) -> NodeUse:
    """Where nothing tells a process which GPUs of a node are its own, all were measured: those that computed
    most are the job's, as many as it asked for; if it asked for none, those that computed.
    """
    if len(node.devices) <= asked:
        return node
    by_use = sorted(range(len(node.devices)), key=lambda index: -(node.devices[index].use or 0.0))
    own = by_use[:asked] if asked else [index for index in by_use if node.devices[index].use]
    return msgspec.structs.replace(node, devices=[node.devices[index] for index in sorted(own)])
