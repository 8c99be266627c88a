"""Queues that give a job some devices of a node, others that give whole nodes, and which is chosen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site, contradictions
from castoff.launcher.errors import InvalidInput
from castoff.launcher.interactive.in_allocation import plan_in
from castoff.launcher.planning.planner import plan
from castoff.launcher.planning.render import render
from castoff.launcher.runs.plan import Plan
from castoff.launcher.schedulers.pbs.allocation import PbsAllocation
from castoff.launcher.typed.document import dotted

JOB: dict[str, Any] = {
    "command": ["python", "train.py"],
    "account": "a",
    "walltime": "30m",
    "devices_per_rank": 1,
    "directives": {"filesystems": "home:eagle"},
}
FACT = {"source": "a wiki", "date": "2026-11-29"}
BY_GPU: dict[str, Any] = {
    "ranges": [{"max_nodes": 1}],
    "select_counts": "devices",
    "device_counts": [1, 2],
    **FACT,
}


def planned(at: Site | str = "sophia", **fields: Any) -> Plan:
    return plan(JobSpec.of({**JOB, **fields}), Site.load(at) if isinstance(at, str) else at)


def refused(at: Site | str = "sophia", **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        planned(at, **fields)
    return {problem.path: problem.message for problem in caught.value.problems}


def lab(**fields: Any) -> Site:
    """A site with one such queue."""
    plain = {
        "name": "lab",
        "description": "d",
        "scheduler": "pbs",
        "launcher": "hydra",
        "queues": {"gpu": BY_GPU},
        "default_queue": "gpu",
        "requested_resources": ["ncpus", "mpiprocs", "ngpus", "mem"],
        "node": {"sockets": ["0-7"], "devices": [2], "device_variable": "CUDA_VISIBLE_DEVICES", **FACT},
        **fields,
    }
    return msgspec.convert(plain, Site)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_job_gets_some_devices_of_a_node(ranks: int) -> None:
    found = planned(ranks_per_node=ranks)
    asked = dict(found.directives)
    assert (asked["q"], asked["select"], asked.get("place")) == ("by-gpu", str(ranks), None)
    assert (found.layout, found.devices_per_node, found.cores_per_rank) == ([(ranks, 1)], ranks, 16)
    # PBS shows the job its own devices alone, whose numbers on the node nobody knows before.
    assert (found.devices.visible, found.devices.per_rank, found.devices.step) == (None, [], 1)
    assert not found.bound
    assert "CUDA_VISIBLE_DEVICES" not in render(found).partition("=== castoff for")[0]


def test_devices_of_each_rank_count() -> None:
    found = planned(ranks_per_node=2, devices_per_rank=4, cores_per_rank=64)
    assert (dict(found.directives)["select"], found.devices.step) == ("8", 4)
    assert dict(planned(devices_per_rank=2).directives)["select"] == "8", "as many ranks as have devices"
    driver = {"driver": True}
    assert dict(planned(devices_per_rank=2, launcher=driver).directives)["select"] == "2"
    torchrun = planned(ranks_per_node=4, launcher={"torchrun": True})
    assert (dict(torchrun.directives)["select"], torchrun.devices.visible) == ("4", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"nodes": 2, "ranks_per_node": 3},
        {"exclusive": True, "ranks_per_node": 3},
        {"queue": "by-node", "ranks_per_node": 3},
        {"restart": {"max": 1, "spare_nodes": 1}, "ranks_per_node": 3},
    ],
)
def test_a_job_gets_whole_nodes(fields: dict[str, Any]) -> None:
    found = planned(**fields)
    asked = dict(found.directives)
    assert asked["q"] == "by-node"
    assert asked["select"] == str(found.held_nodes)
    assert str(asked["place"]).startswith("scatter")
    assert found.devices_per_node == 8
    assert found.devices.visible == "2,0,6", "beside the cores of each rank"
    assert found.bound


def test_the_choice_is_reported() -> None:
    note = "queue by-node: chosen from by-gpu, by-node, as the job names none"
    assert note in planned(nodes=2).notes
    assert f"# {note}" in render(planned(nodes=2))
    assert not [one for one in planned(nodes=2, queue="by-node").notes if "chosen from" in one]


COUNTS = (
    "by-gpu gives a job 1, 2, 4 or 8 of a node's devices (sophia/queueing-and-running-jobs/running-jobs, "
)


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        (
            {"ranks_per_node": 3},
            "ranks_per_node",
            ["is 3, but " + COUNTS, "use 1, 2, 4 or 8 ranks a node, or `queue: by-node` for whole nodes"],
        ),
        ({"ranks": 6}, "ranks", ["is 6, but " + COUNTS, "use 1, 2, 4 or 8 ranks"]),
        ({"ranks_per_node": 3, "devices_per_rank": 2}, "ranks_per_node", ["use 1, 2 or 4 ranks a node"]),
        ({"ranks_per_node": 1, "devices_per_rank": 3}, "devices_per_rank", ["is 3, but " + COUNTS]),
        ({"devices_per_rank": 3}, "devices_per_rank", ["is 3, but " + COUNTS]),
        ({"devices_per_rank": 0}, "devices_per_rank", ["is 0, but " + COUNTS]),
        ({"queue": "by-gpu", "nodes": 2}, "queue", ["does not take 2 nodes", "what would: by-node"]),
        ({"queue": "by-node", "nodes": 9}, "queue", ["does not take 9 nodes", "1 to 8 nodes for 5m to 24h"]),
        ({"queue": "bigmem", "nodes": 2}, "queue", ["does not take 2 nodes", "1 node for 5m to 12h"]),
        ({"queue": "single-gpu"}, "queue", ["takes no jobs itself: use `queue: by-gpu`"]),
        (
            {"nodes": 9},
            "queue",
            [
                "is not set, and none takes 9 nodes for 00:30:00: by-gpu takes 1 node for 5m to 24h, and "
                "1, 2, 4 or 8 of its devices; by-node takes 1 to 8 nodes for 5m to 24h (sophia/"
            ],
        ),
        ({"walltime": "4m"}, "queue", ["none takes 1 node for 00:04:00"]),
        ({"walltime": "25h"}, "queue", ["none takes 1 node for 25:00:00"]),
        (
            {"ranks_per_node": 2, "cores_per_rank": 17},
            "cores_per_rank",
            ["is 17, but by-gpu gives 16 cores with each device", "16 for each rank"],
        ),
        (
            {"ranks_per_node": 2, "memory": "257G"},
            "memory",
            ["is 257G, but 2 of a node's 8 devices come with 256G"],
        ),
        ({"queue": "by-gpu", "exclusive": True}, "exclusive", ["devices of one node, which others share"]),
        (
            {"directives": {"filesystems": "home", "place": "scatter"}},
            "directives.place",
            ["is scatter, which asks for a node for each device", "drop it"],
        ),
        ({"select": [{"nodes": 1, "model": "x"}]}, "select", ["is a list", "write a mapping"]),
    ],
)
def test_what_a_queue_does_not_give(fields: dict[str, Any], path: str, words: list[str]) -> None:
    found = refused(**fields)
    assert list(found) == [path]
    assert [one for one in words if one not in found[path]] == []


def test_what_a_device_comes_with_is_granted() -> None:
    found = planned(ranks_per_node=2, cores_per_rank=16, memory="256G")
    assert "mem" not in str(found.directives)


def test_chunks_of_devices_request_what_select_adds() -> None:
    found = planned(lab(), ranks_per_node=2, select={"system": "lab"})
    assert dict(found.directives)["select"] == "2:system=lab", "not the ncpus, ngpus and mpiprocs of a node"
    assert (
        "does not say how much memory comes with 1 of a node's 2"
        in (refused(lab(), ranks_per_node=1, memory="1G")["memory"])
    )
    assert (
        "use up to 2 ranks a node, or another queue"
        in (
            refused(
                lab(
                    queues={"gpu": {**BY_GPU, "device_counts": [], "max_devices": 2}},
                    node={"sockets": ["0-7"], "devices": [4], "device_variable": "X", **FACT},
                ),
                ranks_per_node=3,
            )["ranks_per_node"]
        )
    )


def test_the_memory_of_a_queues_own_nodes() -> None:
    assert planned(queue="bigmem", memory="2000G")
    assert "a node has 2T" in refused(queue="bigmem", memory="3T")["memory"]
    assert "a node has 1T" in refused(queue="by-node", memory="2000G")["memory"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"queue_choice": ["gpus"]},
            "queue_choice.0: is gpus, which is not a queue of this site; did you mean gpu?",
        ),
        ({"request_form": "nodes"}, "queues.gpu.select_counts: is devices, but request_form is nodes"),
        ({"node": None}, "queues.gpu.select_counts: is devices, but node.devices is missing: write it"),
        ({"ranges": []}, "queues.gpu.ranges: must each have max_nodes: 1"),
        ({"ranges": [{"max_nodes": 2}]}, "queues.gpu.ranges: must each have max_nodes: 1"),
        (
            {"device_counts": []},
            "queues.gpu.select_counts: is devices, but device_counts and max_devices are missing",
        ),
        ({"max_devices": 2}, "queues.gpu.device_counts: is set, and so is max_devices: drop one of the two"),
        ({"exclusive": True}, "queues.gpu.exclusive: is true, but with device_counts jobs share nodes"),
    ],
)
def test_a_profile_that_contradicts_itself(changed: dict[str, Any], message: str) -> None:
    of_queue = {name: value for name, value in changed.items() if name not in Site.__struct_fields__}
    of_site = {name: value for name, value in changed.items() if name not in of_queue}
    at = lab(**{"queues": {"gpu": {**BY_GPU, **of_queue}}, **of_site})
    found = [f"{dotted(path)}: {text}" for path, text in contradictions(at)]
    assert [one for one in found if one.startswith(message)]
    assert not [*contradictions(lab())]


def test_an_allocation_of_some_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PbsAllocation, "devices", lambda *_: 2)
    spec = JobSpec.of({"command": ["train"]})
    found, _ = plan_in(PbsAllocation("7", ["n1"]), spec, Site.load("sophia"), {})
    assert (found.ranks, found.bound) == (2, False)
    assert Site.load("sophia").node.exclusive is False  # type: ignore[union-attr]  # so PBS is asked
