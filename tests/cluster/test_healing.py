"""Restarts within a job of Slurm: spare hosts take the place of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import until

from . import healing
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly


def test_ranks_begin_again_as_copies_of_the_same_processes(slurm: SlurmCluster, tmp_path: Path) -> None:
    healing.ranks_begin_again_as_copies_of_the_same_processes(slurm, tmp_path / "copies")


def test_a_host_whose_ranks_die_twice_is_replaced(slurm: SlurmCluster, tmp_path: Path) -> None:
    healing.a_host_whose_ranks_die_twice_is_replaced(slurm, tmp_path / "twice")


def test_hosts_that_are_not_fit_get_no_rank(slurm: SlurmCluster, tmp_path: Path) -> None:
    healing.hosts_that_are_not_fit_get_no_rank(slurm, tmp_path / "unfit", "n2", "n3")


def test_too_few_hosts_end_the_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    healing.too_few_hosts_end_the_job(slurm, tmp_path / "few", "n1")


@pytest.mark.long
def test_a_host_whose_daemon_is_gone_is_replaced(slurm: SlurmCluster, tmp_path: Path) -> None:
    try:
        why = healing.a_host_whose_daemon_is_gone_is_replaced(
            slurm, tmp_path / "gone", "n2", slurm.kill_slurmd
        )
        assert "(srun: error: " in why and "failed on node n2: Communication connection failure" in why
    finally:
        slurm.resume()


@pytest.mark.long
def test_a_host_that_is_cut_off_is_replaced(slurm: SlurmCluster, tmp_path: Path) -> None:
    try:
        healing.a_host_that_is_cut_off_is_replaced(slurm, tmp_path / "cut", "n2")
    finally:
        slurm.resume()


@pytest.mark.long
def test_a_host_that_slurm_gives_up_first_is_replaced(slurm: SlurmCluster, tmp_path: Path) -> None:
    try:
        healing.a_host_that_is_given_up_is_replaced(slurm, tmp_path / "given-up", "n2", slurm.set_down)
    finally:
        slurm.resume()


@pytest.mark.long
def test_a_host_that_slurm_gives_up_last_is_replaced(slurm: SlurmCluster, tmp_path: Path) -> None:
    """By default it does so after five minutes, for which srun would wait."""
    try:
        healing.a_host_that_is_lost_when_a_rank_fails_is_replaced(
            slurm, tmp_path / "lost", "n2", slurm.set_down
        )
    finally:
        slurm.resume()


@pytest.mark.long
@pytest.mark.parametrize("requeue", [None, {"max": 1}], ids=["ended", "requeued"])
def test_a_job_that_has_lost_its_script_is_not_left_idle(
    requeue: dict[str, int] | None, slurm: SlurmCluster, tmp_path: Path
) -> None:
    lines = '[ "$CASTOFF_ATTEMPT" -ge 1 ] || exec sleep 1000'
    job = healing.submitted(slurm, tmp_path / "script", lines, requeue=requeue)
    try:
        job.wait_for("ready-0", 4)
        script = job.record("start")["host"]
        slurm.down(script)
        slurm.set_down(script)
        if requeue:
            assert job.ending("0.1") == ("done", 0), job.output()
            assert script not in healing.hosts(job, 1)
        else:
            assert job.ending() == ("node-failure", 1)
            until(lambda: not slurm.run("head", ["squeue", "--noheader", "--job", job.id]).stdout, "its end")
        assert f"{script}, the host of the job's script, was lost" in job.output()
    finally:
        slurm.resume()
