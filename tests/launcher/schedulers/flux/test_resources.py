"""What Flux says about its machine, read from answers of a real flux-core 0.88."""

from __future__ import annotations

from pathlib import Path

from castoff.launcher.schedulers.flux.resources import parse
from castoff.launcher.schedulers.machine_info import NodeKind, QueueInfo

ANSWERS = Path(__file__).parents[2] / "answers" / "flux"


def test_queues_and_nodes() -> None:
    info = parse({about: (ANSWERS / f"{about}.txt").read_text() for about in ("queues", "nodes")})
    assert info.queues == {"batch": QueueInfo(), "debug": QueueInfo(max_walltime=3600)}
    assert info.default_queue == "batch"
    assert info.nodes == [NodeKind(12, 4, nodes=4)]


def test_without_queues_and_with_unlike_nodes() -> None:
    info = parse({"queues": "|inf|0|inf\n", "nodes": "2|8|0\n3|10|3\n0|0|0\n"})
    assert (info.queues, info.default_queue) == ({}, None)
    assert info.nodes == [NodeKind(4, nodes=2)]
