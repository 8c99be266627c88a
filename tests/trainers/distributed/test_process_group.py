"""How ranks meet: where, by which backend, on which device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.device_choice import backend_for, choose_device, device_ids
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.distributed.process_group import RankContext, local_rank, rendezvous
from tests import patience

# --- Where ---------------------------------------------------------------------------------------

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True"}


def test_q4_where_torchrun_lets_ranks_meet_is_left_alone() -> None:
    given = {"MASTER_ADDR": "head", "MASTER_PORT": "29400", **TORCHRUN}
    given |= {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    before = dict(given)
    rendezvous(given, RankEnv.detect(given), 1, 2, "localhost", "12345")
    assert given == before


@pytest.mark.usefixtures("for_real")
@pytest.mark.long
def test_q4_the_guides_example_under_torchrun(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "from castoff.trainers.ddp import initialize_ddp, cleanup_ddp\n"
        "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "place = initialize_ddp(rank=rank, worldsize=world, backend='gloo')\n"
        "import torch\n"
        "sys.stdout.write(f'sum={int(place.sum(torch.tensor([rank + 1])))} ')\n"
        "cleanup_ddp()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(script)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=patience.SECONDS, check=False
    )
    assert done.stdout == "sum=3 sum=3 ", done.stderr


def test_a_program_that_spawns_its_ranks_sets_their_rendezvous() -> None:
    given: dict[str, str] = {}
    rendezvous(given, RankEnv.detect({}), 1, 2, "localhost", "12399")
    assert given == {"MASTER_ADDR": "localhost", "MASTER_PORT": "12399"}


def test_q4_ranks_that_are_spawned_inside_torchrun_meet_without_its_store() -> None:
    """Nobody would listen at the address in their environment: torchrun's agent listens at its own."""
    given = {"MASTER_ADDR": "head", "MASTER_PORT": "29400", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    given |= {"LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0", **TORCHRUN}
    rendezvous(given, RankEnv.detect(given), 1, 2, "localhost", "12399")
    assert (given["MASTER_ADDR"], given["MASTER_PORT"]) == ("localhost", "12399")
    assert "TORCHELASTIC_USE_AGENT_STORE" not in given


def test_a_job_of_several_ranks_may_not_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "CASTOFF_LAUNCHER": "local"}
    given |= {"CASTOFF_RANK": "1/4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    with pytest.raises(
        DistributedError, match=r"according to local this is rank 1 of 4, but the program says rank 0 of 2"
    ):
        rendezvous(given, RankEnv.detect(given), 0, 2, "localhost", "12345")


# --- On which device, by which backend ------------------------------------------------------------


def test_q2_ddp_gets_an_index_and_no_device() -> None:
    assert device_ids(torch.device("cpu")) is None
    assert device_ids(torch.device("cuda", 2)) == [2]
    assert device_ids(torch.device("xpu", 0)) == [0]


def test_q7_the_local_rank_chooses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert local_rank(RankEnv.detect(given), 5, 8) == 1
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    assert choose_device("auto", 1) == torch.device("cuda", 1)
    assert choose_device("cuda", 5, 2) == torch.device("cuda", 2)
    assert choose_device("cuda", 5) == torch.device("cuda", 1)
    with pytest.raises(
        DistributedError, match=r"is cuda:4 \(CASTOFF_DEVICE\), but the rank sees 4; ask for as many"
    ):
        choose_device("cuda", 4, 4)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    assert choose_device("cuda", 3) == choose_device("cuda", 3, 3) == torch.device("cuda", 0)
    with pytest.raises(DistributedError, match="this host has cuda"):
        choose_device("xpu", 0)


def test_a_device_that_is_not_there() -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is one on this machine")
    assert choose_device("auto", 3) == torch.device("cpu")
    with pytest.raises(
        DistributedError, match=r"device is cuda, but torch .* sees no such device here; write device"
    ):
        choose_device("cuda", 0)


@pytest.mark.parametrize(
    ("asked", "device", "backend"),
    [
        *((None, "cpu", "gloo"), ("ccl", "xpu", "xccl"), ("xpu", "xpu", "xccl"), ("nccl", "cuda", "nccl")),
        *(("auto", "cpu", "gloo"), ("auto", "cuda", "nccl"), ("auto", "xpu", "xccl")),
    ],
)
def test_backends(asked: str | None, device: str, backend: str) -> None:
    assert backend_for(asked, torch.device(device)) == backend


def test_a_place_without_a_group() -> None:
    context = RankContext(0, 1, torch.device("cpu"))
    assert torch.equal(context.sum(torch.ones(2)), torch.ones(2))
    assert context.from_main("x") == "x"
    context.barrier("nothing")
