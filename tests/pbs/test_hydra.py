"""Rendered scripts on a PBS, submitted by hand: MPICH's mpiexec starts their ranks on several hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff import Site
from tests.cluster.jobs import Submitted

from .cluster import PbsCluster

pytestmark = pytest.mark.costly


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
    assert f"castoff: rank 3 on {second} failed first: exit code 85" in job.output()
    assert "EXIT CODE: 9" in job.output()
    assert "signal 9 in the report of hydra above is castoff's" in job.output()


def places(job: Submitted) -> list[tuple[str, ...]]:
    """Who each rank is, and where."""
    assert job.ending() == ("done", 0), job.output()
    lines = [path.read_text().strip() for path in sorted(Path(job.run_dir, "logs", "0.0").glob("rank-*.log"))]
    return [tuple(line.split()) for line in lines]


SAYS = ["sh", "-c", "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $(hostname)"]


def test_ranks_of_several_kinds_of_chunks(pbs: PbsCluster, tmp_path: Path) -> None:
    """They are numbered over the hosts in the order of the chunks."""
    kinds = [
        {"host": "n3", "ranks_per_node": 1, "memory": "16M"},
        {"host": "n1", "ranks_per_node": 3},
        {"nodes": 2, "ranks_per_node": 2},
    ]
    found = places(Submitted(pbs, tmp_path / "kinds", command=SAYS, select=kinds))
    last = [found[4][-1], found[6][-1]]
    assert sorted(last) == ["n2", "n4"]
    assert found == [
        ("0", "0", "1", "0", "n3"),
        *((str(1 + local), str(local), "3", "1", "n1") for local in range(3)),
        *((str(4 + local), str(local), "2", "2", last[0]) for local in range(2)),
        *((str(6 + local), str(local), "2", "3", last[1]) for local in range(2)),
    ]


@pytest.mark.parametrize(
    ("form", "nodes"), [("nodes", 2), ("ncpus", 1)], ids=["-l nodes=2:ppn=2", "-l ncpus=2"]
)
def test_a_cluster_without_select(pbs: PbsCluster, tmp_path: Path, form: str, nodes: int) -> None:
    site = Site.load("pbs").changed(request_form=form)
    job = Submitted(
        pbs, tmp_path / form, site=site, command=SAYS, nodes=nodes, ranks_per_node=2, memory="16M"
    )
    found = places(job)
    assert [one[:4] for one in found] == [
        (str(rank), str(rank % 2), "2", str(rank // 2)) for rank in range(2 * nodes)
    ]
    assert len({one[4] for one in found}) == nodes
