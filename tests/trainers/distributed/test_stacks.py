"""A rank writes its stacks when QUIT comes, whatever it is doing, and its loader workers do not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP, initialize_ddp
from castoff.trainers.distributed.failures import reported
from castoff.trainers.distributed.stacks import write_stacks_on_request
from castoff.trainers.task import Loss
from tests.patience import until
from tests.trainers.toys import Ranks, Toy, config

pytestmark = pytest.mark.usefixtures("for_real")


class SlowToBuild(Toy):
    """Its model takes for ever."""

    def build_model(self) -> nn.Module:
        build_for_ever()
        raise AssertionError


def build_for_ever() -> None:
    Path(f"{os.environ['SEEN']}-{os.environ['RANK']}").touch()
    time.sleep(1000)


def building(path: str) -> None:
    with reported(RankEnv.detect()):
        TrainerDDP(0, config(path), SlowToBuild())


def deadlocked(path: str) -> None:
    """Rank 1 never comes to the collective."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    if me.rank == 1:
        build_for_ever()
    wait_for_the_others(me.rank)


def wait_for_the_others(rank: int) -> None:
    Path(f"{os.environ['SEEN']}-{rank}").touch()
    dist.all_reduce(torch.zeros(1))


class Waiting(Toy):
    """Its second step waits, while loader workers are alive."""

    losses = 0

    def loss(self, model: nn.Module, batch: torch.Tensor) -> Loss:
        self.losses += 1
        if self.losses == 3:
            build_for_ever()
        return super().loss(model, batch)


def with_workers(path: str) -> None:
    with reported(RankEnv.detect()):
        trainer = TrainerDDP(0, config(path, num_workers=2), Waiting())
        training, validation, _ = trainer.prepare_dataloaders()
        trainer.run_training(training, validation)


def written(path: Path) -> str | None:
    """What a rank has written, once its outermost call is there; Python 3.14 sees none beyond a fork."""
    text = path.read_text()
    return text if text.endswith((" in _run_module_as_main\n", "  <invalid frame>\n")) else None


@pytest.mark.parametrize(
    ("program", "places"),
    [
        (building, ["build_for_ever"]),
        (deadlocked, ["wait_for_the_others", "build_for_ever"]),
        (with_workers, ["build_for_ever"]),
    ],
)
def test_each_rank_writes_its_own(program: Callable[[str], None], places: list[str], tmp_path: Path) -> None:
    """Workers get the signal, too, as when it goes to the process group, and live on."""
    environ = {"CASTOFF_STACK_DIR": str(tmp_path), "SEEN": str(tmp_path / "seen")}
    ranks = Ranks(tmp_path / "ranks", len(places), environ)
    ranks.start(program, str(tmp_path / "out"))
    try:
        until(lambda: len(list(tmp_path.glob("seen-*"))) == len(places), "the ranks")
        for process in ranks.processes:
            os.killpg(process.pid, signal.SIGQUIT)
        for rank, place in enumerate(places):
            path = tmp_path / f"rank-{rank:05d}.txt"
            text: str = until(partial(written, path), "its stacks")
            assert text.count(f" in {place}\n") == 1, text
            assert "torch/utils/data/_utils/worker.py" not in text
        assert [process.poll() for process in ranks.processes] == [None] * len(places)
    finally:
        ranks.kill()


def unregistered(folder: str) -> str:
    """What a forked child does with QUIT, and where the stacks go that nobody can write."""
    write_stacks_on_request(0, {"CASTOFF_STACK_DIR": f"{folder}/gone"})
    write_stacks_on_request(0, {"CASTOFF_STACK_DIR": folder})
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGQUIT)
        os._exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    before = Path(folder, "rank-00000.txt").read_text()
    os.kill(os.getpid(), signal.SIGQUIT)
    after = Path(folder, "rank-00000.txt").read_text()
    return f"{code} {bool(before)} {bool(after)}"


def test_a_forked_child_neither_writes_nor_dies(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 1)
    ranks.start(unregistered, str(tmp_path))
    assert ranks.answers() == ["7 False True"]
