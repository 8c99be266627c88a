"""What PBS says about its machine, read from answers in the form of its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.machine import Bounds, NodeKind, Told
from launcher.schedulers.pbs import machine as pbs_limits

ANSWERS = Path(__file__).parents[2] / "answers" / "pbs"


def told(queues: str = "queues", **others: str) -> Told:
    answers = {about: (ANSWERS / f"{about}.json").read_text() for about in ("server", "nodes")}
    return pbs_limits.parse({"queues": (ANSWERS / f"{queues}.json").read_text(), **answers, **others})


def test_queues() -> None:
    queues = told().queues
    assert queues["debug"].bounds == Bounds(1, 2, 300, 3600)
    assert queues["debug-scaling"].bounds.max_walltime == 3600, "JSON made a number of it"
    assert queues["capacity"].bounds.max_walltime == 168 * 3600
    assert queues["R640002"].bounds == Bounds(None, 16, None, None)
    assert queues["prod"].routes_to[:3] == ("small", "medium", "large")
    assert [name for name, queue in queues.items() if not queue.offered] == [
        *("small", "medium", "large", "backfill-small", "backfill-medium", "backfill-large", "old")
    ]


@pytest.mark.parametrize(
    ("queue", "jobs"),
    [
        ("debug", 1),
        ("debug-scaling", 2),  # one may run and one wait
        ("prod", 100),  # of a project
        ("preemptable", 20),  # the lesser of a project's and a user's
        ("capacity", 2),
        ("small", None),
    ],
)
def test_jobs_of_one_user(queue: str, jobs: int | None) -> None:
    assert told().queues[queue].max_jobs == jobs


def test_a_key_that_stands_twice() -> None:
    assert told("queues-before-2025-08").queues["workq"].max_jobs == 7


def test_server_and_nodes() -> None:
    found = told()
    assert (found.default_queue, found.array_count) == ("prod", 10000)
    assert found.filesystems == ["home", "eagle"]
    assert found.nodes == [NodeKind(2, None, 64, 4)], "one that tells nothing of itself is left out"
    assert found.qos is None


def test_a_server_that_tells_nothing() -> None:
    found = told(server='{"Server": {"head": {}}}', nodes='{"nodes": {}}')
    assert (found.default_queue, found.array_count, found.filesystems, found.nodes) == (None, None, [], [])


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"Server": {}}'])
def test_what_pbs_does_not_write(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        told(server=text)
