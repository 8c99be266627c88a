"""Restarts within a job of Slurm: spare hosts take the place of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import healing
from .slurm import SlurmCluster


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
