"""Ranks that a real Slurm binds: which cores each may use, and whether its devices are those beside them.

A cluster of its own, since the others' nodes claim more CPUs than this machine has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff import Site
from castoff.launcher.config.site_fields import Node

from .jobs import Submitted
from .slurm import SlurmCluster

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif({0, 1} - os.sched_getaffinity(0) != set(), reason="needs the CPUs 0 and 1"),
]

WHERE = [
    "sh",
    "-c",
    f'exec {sys.executable} -m castoff.launcher.ranks --json >"$PROBE_FOLDER/rank-$RANK.json"',
]


@pytest.fixture(scope="module")
def binding_slurm(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """One with task/affinity and two CPUs a node; the last line about a plugin counts."""
    cluster = SlurmCluster(tmp_path_factory.mktemp("binding"), cpus=2, further="TaskPlugin=task/affinity")
    try:
        yield cluster
    finally:
        cluster.close()


def site(*sockets: str, **fields: Any) -> Site:
    """Nodes with these cores, and two devices on each socket."""
    node = Node(
        sockets=[*sockets],
        devices=[2] * len(sockets),
        device_variable="CUDA_VISIBLE_DEVICES",
        exclusive=True,
        source="lscpu",
        date="2026-11-26",
    )
    return msgspec.structs.replace(Site.load("slurm"), node=node, **fields)


def args(*words: str) -> dict[str, Any]:
    return {"launcher": {"args": [*words]}}


JOBS: dict[str, tuple[dict[str, Any], list[tuple[str, str, int]]]] = {
    "by castoff": ({}, [("0", "0,2", 0), ("1", "0,2", 1)]),
    "binding": ({"binding": "1:0"}, [("1", "2,0", 0), ("0", "2,0", 1)]),
    # Of one CPU, --cpus-per-task=1 would give the step the first.
    "only the second": ({"binding": "1", "ranks_per_node": 1}, [("1", "2", 0)]),
    "map_cpu": (args("--cpu-bind=map_cpu:1,0"), [("1", "2,0", 0), ("0", "2,0", 1)]),
    "mask_cpu": (args("--cpu-bind=verbose,mask_cpu:0x2,0x1"), [("1", "2,0", 0), ("0", "2,0", 1)]),
    "unbound": (args("--cpu-bind=none"), [("0-1", "0,2", 0), ("0-1", "0,2", 1)]),
    "by srun": (args("--cpu-bind=cores"), [("0", "0,2", 0), ("1", "0,2", 1)]),
    "map_gpu": (args("--gpu-bind=map_gpu:1,3"), [("0", "1", 0), ("1", "3", 0)]),
    "backwards": (args("--cpu-bind=cores"), [("0", "0,2", 0), ("1", "0,2", 1)]),
}
"""Each one's fields, and of each rank its CPUs, what shows it devices, and its device among these."""


@pytest.fixture(scope="module")
def jobs(binding_slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    folder = tmp_path_factory.mktemp("jobs")
    submitted = {}
    for name, (fields, _) in JOBS.items():
        at = site("1", "0") if name == "backwards" else site("0", "1")
        all_fields = {"command": WHERE, "ranks_per_node": 2, **fields}
        submitted[name] = Submitted(binding_slurm, folder / name.replace(" ", "-"), site=at, **all_fields)
    return submitted


@pytest.mark.parametrize("name", JOBS)
def test_where_ranks_are(name: str, jobs: dict[str, Submitted]) -> None:
    job, (_, expected) = jobs[name], JOBS[name]
    assert job.ending() == ("done", 0), job.output()
    found = [
        (rank["cpus"], rank["masks"]["CUDA_VISIBLE_DEVICES"], rank["placement"]["device"])
        for rank in job.ranks()
    ]
    assert found == expected
    if name != "backwards":
        assert "data crosses the node" not in job.output()


def test_ranks_that_srun_puts_away_from_their_devices_say_so(jobs: dict[str, Submitted]) -> None:
    job = jobs["backwards"]
    assert job.ending() == ("done", 0), job.output()
    said = job.output()
    assert "rank 0 runs on CPUs 0, but its device is beside CPUs 1, so data crosses the node. srun" in said
    assert "rank 1 runs on CPUs 1, but its device is beside CPUs 0" in said
    assert "in the job file binding: 1:0\n" in said


@pytest.mark.parametrize("listed", [True, False], ids=["by the profile", "as the job has them"])
def test_members_that_share_a_node_share_no_core_and_no_device(
    listed: bool, binding_slurm: SlurmCluster, tmp_path: Path
) -> None:
    """Those of one job run side by side, one rank each."""
    whole = site("0", "1") if listed else Site.load("slurm")
    array = {"count": 2, "together": {"nodes": 1, "per_node": 2}}
    command = [*WHERE[:2], WHERE[2].replace("$RANK", "$CASTOFF_ARRAY_INDEX")]
    own: dict[str, Any] = {
        "command": command,
        "ranks_per_node": 1,
        "cores_per_rank": 1,
        "devices_per_rank": 1,
    }
    job = Submitted(binding_slurm, tmp_path / "shared", site=whole, array=array, **own)
    assert job.ending() == ("done", 0), job.output()
    ranks = job.ranks()
    assert [rank["cpus"] for rank in ranks] == ["0", "1"]
    masks = [rank["masks"]["CUDA_VISIBLE_DEVICES"] for rank in ranks]
    assert len({*masks}) == 2 and all("," not in mask for mask in masks)
