"""Rendered scripts on a PBS, submitted by hand: MPICH's mpiexec starts their ranks on several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs import Submitted

from .cluster import PbsCluster


@pytest.fixture(scope="module")
def jobs(pbs: PbsCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    """All at once, so that they run at the same time."""
    folder = tmp_path_factory.mktemp("jobs")
    two: dict[str, Any] = {"nodes": 2, "ranks_per_node": 2}
    return {
        "ranks": Submitted(pbs, folder / "ranks", **two),
        "failing": Submitted(pbs, folder / "failing", probe_env={"PROBE": "fail 3 85"}, **two),
    }


def test_ranks_know_who_they_are(jobs: dict[str, Submitted]) -> None:
    job = jobs["ranks"]
    assert job.ending() == ("done", 0), job.output()
    environs = [seen["environ"] for seen in job.ranks()]
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")
    assert [tuple(environ[name] for name in names) for environ in environs] == [
        ("0", "0", "4", "2", "0"),
        ("1", "1", "4", "2", "0"),
        ("2", "0", "4", "2", "1"),
        ("3", "1", "4", "2", "1"),
    ]
    hosts = Path(job.run_dir, "attempts", "0.0", "hosts").read_text().split()
    assert len(set(hosts)) == 2 and {environ["MASTER_ADDR"] for environ in environs} == {hosts[0]}


def test_a_failing_rank_ends_the_job(jobs: dict[str, Submitted]) -> None:
    job = jobs["failing"]
    assert job.ending() == ("failed", 85), job.output()
    failure = job.record("failure")
    assert (failure["rank"], failure["code"]) == (3, 85)
    first, second = Path(job.run_dir, "attempts", "0.0", "hosts").read_text().split()
    assert failure["host"] == second != first
