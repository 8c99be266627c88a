"""What each launcher tells its ranks, recorded and documented."""

from __future__ import annotations

import os

import pytest

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks import RankEnv
from castoff.launcher.ranks.families import tasks_on_node

from .support import (
    PLACED,
    RECORDINGS,
    detect,
    each_rank,
    expected_place,
    place,
    rank,
    refusal,
)

# What launchers tell


@each_rank()
def test_rank_of_each_recorded_environment(name: str, index: int) -> None:
    recording = RECORDINGS[name]
    expected = recording["expected"][index]
    me = detect(rank(name, index), name)
    assert me.launcher == expected["launcher"]
    assert place(me) == expected_place(name, index)
    assert me.device is None
    assert ("SLURM_LAUNCH_NODE_IPADDR" in me.sources.values()) is False
    if expected["world_size"] == expected["local_world_size"] and me.launcher != "torchrun":
        assert me.master_addr == "127.0.0.1"
    elif any("NODELIST" in v or "NODEFILE" in v for v in rank(name, index)):
        assert me.master_addr == recording["expected"][0]["host"]


@pytest.mark.parametrize("name", [n for n in RECORDINGS if n not in PLACED])
def test_a_process_that_is_not_a_rank_is_refused(name: str) -> None:
    assert RECORDINGS[name]["error"] in refusal(rank(name))


@pytest.mark.parametrize("name", PLACED)
def test_ranks_of_one_start_agree_on_where_they_meet(name: str) -> None:
    found = [detect(environ, name) for environ in RECORDINGS[name]["ranks"]]
    assert len({(me.master_addr, me.master_port) for me in found}) == 1
    assert sorted(me.rank for me in found) == list(range(found[0].world_size))
    if found[0].launcher != "torchrun":
        assert found[0].master_port in range(20000, 30000)


def test_empty_environment_is_a_single_process() -> None:
    me = RankEnv.detect({})
    assert (me.launcher, *place(me)) == ("single", 0, 1, 0, 1, 0)
    assert me.master_addr == "127.0.0.1"


def test_detect_reads_the_process_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, text in rank("hydra-one-host", 1).items():
        monkeypatch.setenv(name, text)
    assert RankEnv.detect().rank == 1


@pytest.mark.parametrize(
    ("counts", "node", "tasks"),
    [("3,1", 1, 1), ("4(x2),2", 0, 4), ("4(x2),2", 1, 4), ("4(x2),2", 2, 2), ("12", 0, 12)],
)
def test_tasks_on_node(counts: str, node: int, tasks: int) -> None:
    assert tasks_on_node(counts, node) == tasks


@pytest.mark.parametrize(("counts", "node"), [("3,1", 2), ("x", 0), ("4(x", 0), ("", 0), ("4,", 1)])
def test_tasks_on_node_refuses(counts: str, node: int) -> None:
    with pytest.raises(PlacementError, match="SLURM_STEP_TASKS_PER_NODE"):
        tasks_on_node(counts, node)


# PALS, whose PMIx form tells no world size


def test_pals_takes_the_world_size_that_the_job_exports() -> None:
    # mpiexec -n 3 --env WORLD_SIZE=3 on two hosts: hosts x local size would be 4
    environ = {**rank("documented-pals-pmix", 1), "WORLD_SIZE": "3"}
    me = detect(environ)
    assert (me.world_size, me.sources["world_size"]) == (3, "WORLD_SIZE")


def test_pals_without_any_world_size() -> None:
    assert "mpiexec --env WORLD_SIZE=" in refusal(rank("documented-pals-pmix"))


def test_pals_does_not_believe_the_inputs_of_mpiexec() -> None:
    environ = {**rank("documented-pals-pmix", 3), "PALS_NRANKS": "8", "PALS_PPN": "8"}
    assert detect(environ, "documented-pals-pmix").world_size == 4


# Where the ranks meet


@pytest.mark.parametrize(
    "change", [{"SLURM_ARRAY_TASK_ID": "1"}, {"SLURM_RESTART_COUNT": "1"}, {"SLURM_STEP_ID": "1"}]
)
def test_port_belongs_to_one_start(change: dict[str, str]) -> None:
    environ = rank("srun-two-nodes")
    assert detect({**environ, **change}).master_port != detect(environ).master_port


def test_master_that_is_set_is_kept_and_the_rest_found() -> None:
    environ = {**rank("srun-two-nodes", 2), "MASTER_ADDR": "ib0.n1"}
    me = detect(environ)
    assert me.master_addr == "ib0.n1"
    assert me.master_port == detect(rank("srun-two-nodes", 2)).master_port


ARBITRARY = {"SLURM_DISTRIBUTION": "arbitrary", "SLURM_HOSTFILE": "/placed"}


def test_along_a_host_file_the_master_is_on_its_first_line() -> None:
    """Which may be a host list or have a count; Slurm's own list of the step's nodes is in another order."""
    environ = {**rank("srun-two-nodes"), **ARBITRARY}
    for text in ("n2\nn1\n", "# ours\n\n n2*3\nn1\n", "n[2,1]\n"):
        files = {"/placed": text}
        assert RankEnv.detect(environ, read_file=files.__getitem__).master_addr == "n2"
    assert RankEnv.detect({**environ, "MASTER_ADDR": "x"}, read_file=files.__getitem__).master_addr == "x"


def test_a_host_file_that_cannot_be_read_leaves_the_master_unknown() -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(path)

    with pytest.raises(PlacementError, match=r"SLURM_HOSTFILE=/placed.* Set MASTER_ADDR"):
        RankEnv.detect({**rank("srun-two-nodes"), **ARBITRARY}, read_file=missing)


def test_launch_address_of_srun_is_never_the_master() -> None:
    environ = {**rank("srun-two-nodes", 2), "SLURM_LAUNCH_NODE_IPADDR": "10.77.0.10"}
    assert detect(environ).master_addr == "n1"
