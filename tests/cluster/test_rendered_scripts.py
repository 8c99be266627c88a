"""Rendered scripts on a real Slurm, submitted by hand and standing alone.

All jobs are submitted at once, because some have to wait for Slurm; each test then looks at its own.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.launcher.scripts.harness import STALE

from .jobs import Submitted
from .slurm import SlurmCluster

ALL_REDUCE = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print("total", int(total), "at", os.environ["MASTER_ADDR"], flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def jobs(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    folder = tmp_path_factory.mktemp("jobs")

    def submit(name: str, **fields: Any) -> Submitted:
        return Submitted(slurm, folder / name, **fields)

    two = {"nodes": 2, "ranks_per_node": 2}
    return {
        "again": submit("again", probe_env={"PROBE": "outcome again"}, requeue={"max": 1}),
        # One of two minutes asks for its stop 20 s after its start, or earlier.
        "stopping": submit("stopping", probe_env={"PROBE": "stop"}, walltime="2m", grace="100s", **two),
        "all_reduce": submit("all_reduce", command=[sys.executable, "-c", ALL_REDUCE], nodes=2),
        "stale": submit("stale", env=STALE, inherit="all", **two),
        "uneven": submit("uneven", nodes=2, ranks=3),
        "failing": submit("failing", probe_env={"PROBE": "fail 3 85"}, **two),
        "array": submit("array", array={"count": 3, "at_most": 2}),
        "terminated": submit("terminated", probe_env={"PROBE": "wait done"}, **two),
    }


def test_stale_variables_misplace_no_rank(jobs: dict[str, Submitted]) -> None:
    job = jobs["stale"]
    assert job.ending() == ("done", 0), job.output()
    seen = job.ranks()
    told = [
        [rank["detected"][name] for name in ("rank", "local_rank", "node_rank", "world_size", "starter")]
        for rank in seen
    ]
    assert told == [[rank, rank % 2, rank // 2, 4, "srun"] for rank in range(4)]
    hosts = [rank["environ"]["SLURMD_NODENAME"] for rank in seen]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert {rank["environ"]["MASTER_ADDR"] for rank in seen} == {hosts[0]}
    assert {rank["environ"].get("PMI_RANK") for rank in seen} == {None}
    assert job.accounted() == ("COMPLETED", "0:0")


def test_uneven_layout(jobs: dict[str, Submitted]) -> None:
    job = jobs["uneven"]
    assert job.ending() == ("done", 0), job.output()
    told = [
        [rank["detected"][name] for name in ("rank", "local_rank", "local_world_size", "node_rank")]
        for rank in job.ranks()
    ]
    assert told == [[0, 0, 2, 0], [1, 1, 2, 0], [2, 0, 1, 1]]
    assert "Warning" not in job.output()


def test_a_failing_rank_ends_the_job(jobs: dict[str, Submitted]) -> None:
    job = jobs["failing"]
    assert job.ending() == ("failed", 85), job.output()
    assert job.accounted() == ("FAILED", "85:0")
    failure = job.record("failure")
    assert (failure["rank"], failure["code"], failure["signal"]) == (3, 85, None)
    assert failure["host"] == job.ranks()[3]["environ"]["SLURMD_NODENAME"]
    # The others have KillWait (5 s here) to end; by themselves they would go on for 30 s.
    assert job.record("ending")["time"] - failure["time"] < 15
    assert "was the first to fail, with code 85" in job.output()


def test_members_of_an_array(jobs: dict[str, Submitted]) -> None:
    job = jobs["array"]
    assert {job.ending(f"{member}.0") for member in range(3)} == {("done", 0)}, job.output()
    logs = {str(path.relative_to(job.run_dir / "logs")) for path in job.run_dir.glob("logs/*/*")}
    assert logs == {f"{member}.0/rank-00000.log" for member in range(3)}


def test_all_ranks_meet(jobs: dict[str, Submitted]) -> None:
    job = jobs["all_reduce"]
    assert job.ending() == ("done", 0), job.output()
    first = (job.run_dir / "attempts/0.0/hosts").read_text().split()[0]
    assert f"total 3 at {first}" in job.output()
    assert f"total 3 at {first}" in (job.run_dir / "logs/0.0/rank-00001.log").read_text()


def test_a_terminated_script_lets_its_ranks_save(jobs: dict[str, Submitted]) -> None:
    job = jobs["terminated"]
    job.wait_for("ready", 4)
    job.signal("USR2")
    job.wait_for("stopping", 4)
    job.signal("TERM")
    assert job.ending() == ("done", 0), job.output()
    assert job.accounted() == ("COMPLETED", "0:0")


def test_stopping_before_the_walltime(jobs: dict[str, Submitted]) -> None:
    job = jobs["stopping"]
    assert job.ending() == ("walltime", 75), job.output()
    assert job.accounted() == ("FAILED", "75:0")
    told = float(job.ranks()[0]["environ"]["CASTOFF_DEADLINE"])
    assert 60 < told - job.record("start")["time"] <= 121  # the script may begin late


def test_requeue(jobs: dict[str, Submitted]) -> None:
    job = jobs["again"]
    assert job.ending("0.0") == ("again", 0), job.output()
    assert job.ending("0.1") == ("walltime", 75), job.output()
    assert job.accounted() == ("FAILED", "75:0")
    (rank,) = job.ranks()
    assert (rank["environ"]["SLURM_RESTART_COUNT"], rank["environ"]["CASTOFF_ATTEMPT"]) == ("1", "1")
