"""What Flux says about its machine, read from answers of a real flux-core 0.88."""

from __future__ import annotations

from pathlib import Path

from launcher.schedulers.flux.machine import parse
from launcher.schedulers.machine import ToldQueue

ANSWERS = Path(__file__).parents[2] / "answers" / "flux"


def test_queues_and_nodes() -> None:
    told = parse({about: (ANSWERS / f"{about}.txt").read_text() for about in ("queues", "nodes")})
    assert told.queues == {"batch": ToldQueue(), "debug": ToldQueue(max_walltime=3600)}
    assert told.default_queue == "batch"
    assert told.nodes == [(12, 4)]


def test_without_queues_and_with_unlike_nodes() -> None:
    told = parse({"queues": "|inf|0|inf\n", "nodes": "2|8|0\n3|10|3\n0|0|0\n"})
    assert (told.queues, told.default_queue) == ({}, None)
    assert told.nodes == [(4, 0)]
