"""Restarts within a job of PBS: spare hosts take the place of those that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import healing
from tests.patience import until

from .cluster import PbsCluster

pytestmark = pytest.mark.costly


def test_ranks_begin_again_as_copies_of_the_same_processes(pbs: PbsCluster, tmp_path: Path) -> None:
    healing.ranks_begin_again_as_copies_of_the_same_processes(pbs, tmp_path / "copies")


def test_a_host_whose_ranks_die_twice_is_replaced(pbs: PbsCluster, tmp_path: Path) -> None:
    healing.a_host_whose_ranks_die_twice_is_replaced(pbs, tmp_path / "twice")


def test_hosts_that_are_not_fit_get_no_rank(pbs: PbsCluster, tmp_path: Path) -> None:
    healing.hosts_that_are_not_fit_get_no_rank(pbs, tmp_path / "unfit", "n2", "n3")


def test_too_few_hosts_end_the_job(pbs: PbsCluster, tmp_path: Path) -> None:
    healing.too_few_hosts_end_the_job(pbs, tmp_path / "few", "n1")


@pytest.mark.long
def test_a_host_whose_daemon_is_gone_is_replaced(pbs: PbsCluster, tmp_path: Path) -> None:
    try:
        healing.a_host_whose_daemon_is_gone_is_replaced(pbs, tmp_path / "gone", "n2", pbs.kill_mom)
    finally:
        pbs.resume()


@pytest.mark.long
@pytest.mark.parametrize("lost", ["mom", "link"])
def test_a_host_that_pbs_has_given_up_is_replaced(pbs: PbsCluster, tmp_path: Path, lost: str) -> None:
    """PBS sees it first, and the job later, by a rank that fails."""

    def lose(host: str) -> None:
        if lost == "mom":
            pbs.kill_mom(host)
        else:
            pbs.down(host)
        until(lambda: "down" in pbs.state(host), f"{host} down")

    try:
        healing.a_host_whose_daemon_is_gone_is_replaced(pbs, tmp_path / lost, "n2", lose)
    finally:
        pbs.resume()


@pytest.mark.long
def test_a_host_that_is_cut_off_is_replaced(pbs: PbsCluster, tmp_path: Path) -> None:
    try:
        healing.a_host_that_is_cut_off_is_replaced(pbs, tmp_path / "cut", "n2")
    finally:
        pbs.resume()
