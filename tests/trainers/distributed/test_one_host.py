"""Ranks of one host: what they listen on is not seen from other hosts."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.distributed.one_host import on_one_host, stay_within
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Loss
from tests.command_line import Castoff
from tests.ports import free_port
from tests.sockets import listening
from tests.trainers.toys import Sensitive, config, run, train


def beyond_loopback(addresses: list[str]) -> list[str]:
    return [each for each in addresses if not ipaddress.ip_address(each).is_loopback]


class Looks(Sensitive):
    """Looks in the middle of its training."""

    heard: list[str]

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        self.heard = listening([psutil.Process()])
        return super().loss(model, batch)


def trained(folder: Path) -> list[str]:
    task = Looks()
    train(task, config(folder))
    return task.heard


def spawned(port: int) -> list[str]:
    """As ranks that a program has started itself, whose environment sets nothing."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in RankEnv.detect().sources.values():
        os.environ.pop(name, None)
    for name in ("CASTOFF_LAUNCHER", "CASTOFF_RANK", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    assert RankEnv.detect().launcher == "single"
    place = initialize_ddp(rank, size, "localhost", port, device="cpu")
    place.sum(torch.ones(1))
    heard = listening([psutil.Process()])
    cleanup_ddp()
    return heard


@pytest.mark.usefixtures("for_real")
class TestNothingListensBeyondLoopback:
    def check(self, heard: list[list[str]]) -> None:
        assert all(heard), "gloo's pairs of each rank"
        assert [beyond_loopback(each) for each in heard] == [[]] * len(heard)

    def test_while_ranks_train_that_get_their_hosts_name_from_a_scheduler(self, tmp_path: Path) -> None:
        given = {"MASTER_ADDR": socket.gethostname()}
        self.check(run(trained, tmp_path / "out", folder=tmp_path / "ranks", world_size=2, **given))

    def test_of_ranks_that_a_program_spawns(self, tmp_path: Path) -> None:
        self.check(run(spawned, free_port(), folder=tmp_path / "ranks", world_size=2))

    @pytest.mark.costly
    def test_under_castoff_launch_with_all_that_it_starts(
        self, castoff_command: Castoff, tmp_path: Path
    ) -> None:
        (tmp_path / "program.py").write_text(
            "import os, psutil, torch\n"
            "from castoff.launcher.ranks import RankEnv\n"
            "from tests.sockets import listening\n"
            "from castoff.trainers import cleanup_ddp, initialize_ddp\n"
            "me = RankEnv.detect()\n"
            "place = initialize_ddp(me.rank, me.world_size, device='cpu')\n"
            "place.sum(torch.ones(1))\n"
            "if me.rank == 0:\n"
            "    launch = psutil.Process(os.getppid())\n"
            "    assert 'launch' in launch.cmdline()\n"
            "    print('heard', *listening([launch, *launch.children(recursive=True)]))\n"
            "place.barrier('the end')\n"
            "cleanup_ddp()\n"
        )
        answer = castoff_command("launch", "-n", "2", "--", sys.executable, "program.py")
        assert answer.returncode == 0, answer.stderr
        (line,) = [line for line in answer.stdout.splitlines() if "heard " in line]
        heard = line.partition("heard ")[2].split()
        assert len(heard) >= 3 and beyond_loopback(heard) == []


def refused() -> str:
    with pytest.raises(DistributedError) as error:
        initialize_ddp(0, 1, device="cpu")
    return str(error.value)


@pytest.mark.usefixtures("for_real")
def test_a_port_that_something_else_listens_on(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        (said,) = run(refused, folder=tmp_path / "ranks", world_size=1, MASTER_PORT=port)
    assert said.startswith(
        f"rank 0 cannot listen on port {port} of this host, through which the ranks are to connect: "
    )
    assert "Address already in use; `ss -ltnp` shows which process does" in said


LAUNCHED = {
    "CASTOFF_LAUNCHER": "srun",
    "CASTOFF_RANK": "1/2",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "NODE_RANK": "0",
}


@pytest.mark.parametrize(
    ("given", "address", "one"),
    [
        ({**LAUNCHED, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "x0", True),
        ({**LAUNCHED, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, "x0", False),
        ({}, "x0", False),  # spawned by a program: on how many hosts, it does not say
        ({}, "LocalHost", True),
        ({}, "127.0.1.1", True),
        ({}, "::1", True),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "x0", False),  # its LOCAL_WORLD_SIZE is a guess
    ],
)
def test_how_ranks_know(given: dict[str, str], address: str, one: bool) -> None:
    assert on_one_host(RankEnv.detect(given), 1, 2, address) == one


def test_an_interface_that_the_user_names_stays() -> None:
    given = {"GLOO_SOCKET_IFNAME": "eth0"}
    stay_within(given)
    assert given == {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "lo"}
