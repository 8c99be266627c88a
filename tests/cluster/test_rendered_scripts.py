"""Rendered scripts on a real Slurm, submitted by hand and standing alone.

All jobs are submitted at once, because some have to wait for Slurm; each test then looks at its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from .jobs import Submitted
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def jobs(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    folder = tmp_path_factory.mktemp("jobs")

    def submit(name: str, **fields: Any) -> Submitted:
        return Submitted(slurm, folder / name, **fields)

    two = {"nodes": 2, "ranks_per_node": 2}
    return {
        "resume": submit("again", probe_env={"PROBE": "outcome resume"}, requeue={"max": 1}),
        # slurmctld looks every 30 s, and sends the signal up to 30 s early. With a grace of 100 s that was
        # right at the start, now and then before the script listened.
        "stopping": submit("stopping", probe_env={"PROBE": "stop"}, walltime="2m", grace="70s", **two),
        "failing": submit("failing", probe_env={"PROBE": "fail 3 85"}, **two),
        "array": submit("array", array={"count": 3, "max_concurrent": 2}),
        "terminated": submit("terminated", probe_env={"PROBE": "wait done"}, **two),
        "copies": submit("copies", probe_env={"PROBE": "wait done"}, launcher={"preload": ["json"]}, **two),
        "failing copy": submit(
            "failing-copy", probe_env={"PROBE": "fail 3 85"}, launcher={"preload": ["json"]}, **two
        ),
    }


@pytest.mark.parametrize("name", ["failing", "failing copy"])
def test_a_failing_rank_ends_the_job(jobs: dict[str, Submitted], name: str) -> None:
    job = jobs[name]  # the others would go on for a day
    assert job.ending() == ("failed", 85), job.output()
    assert job.accounted() == ("FAILED", "85:0")
    failure = job.record("failure")
    assert (failure["rank"], failure["code"], failure["signal"]) == (3, 85, None)
    assert failure["host"] == job.ranks()[3]["environ"]["SLURMD_NODENAME"]
    assert "failed first: exit code 85" in job.output()


def test_members_of_an_array(jobs: dict[str, Submitted]) -> None:
    job = jobs["array"]
    assert {job.ending(f"{member}.0") for member in range(3)} == {("done", 0)}, job.output()
    logs = {str(path.relative_to(job.run_dir / "logs")) for path in job.run_dir.glob("logs/*/*.log")}
    assert logs == {f"{member}.0/rank-00000.log" for member in range(3)}


@pytest.mark.parametrize("name", ["terminated", "copies"])
def test_a_terminated_script_lets_its_ranks_save(jobs: dict[str, Submitted], name: str) -> None:
    job = jobs[name]
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
    reported = float(job.ranks()[0]["environ"]["CASTOFF_DEADLINE"])
    assert 0 < reported - job.record("start")["time"] <= 121  # the script may begin late


def test_requeue(jobs: dict[str, Submitted]) -> None:
    job = jobs["resume"]
    assert job.ending("0.0") == ("resume", 0), job.output()
    assert job.ending("0.1") == ("walltime", 75), job.output()
    assert job.accounted() == ("FAILED", "75:0")
    (rank,) = job.ranks()
    assert (rank["environ"]["SLURM_RESTART_COUNT"], rank["environ"]["CASTOFF_ATTEMPT"]) == ("1", "1")


def test_ranks_that_are_copies_of_one_process(jobs: dict[str, Submitted]) -> None:
    """One on each node; they are told who they are as others, and nothing of it is left."""
    for name in ("copies", "failing copy"):
        job = jobs[name]
        job.ending()
        assert [rank["environ"]["LOCAL_RANK"] for rank in job.ranks()] == ["0", "1", "0", "1"]
        logs = "".join(path.read_text() for path in (job.run_dir / "logs").glob("*/*.log"))
        assert "castoff: preload" not in logs + job.output()
        assert (job.run_dir / "attempts" / "0.0" / "preload.log").exists()
