"""Small tasks that the tests train, and ranks to train them on."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import TensorDataset

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.stopping import StoppedEarly
from castoff.trainers.optimization.local import local
from castoff.trainers.reporting.throughput import TIMED
from castoff.trainers.task import Loss, Splits, Task
from castoff.trainers.task.splitting import split
from tests import patience
from tests.ports import free_port
from tests.trainers.warm import ForkedRank, Job, perform


class Toy(Task):
    """A regression with dropout: eight numbers to their sum."""

    def __init__(self, samples: int = 203, dropout: float = 0.2, pause: float = 0.0):
        self.samples = samples
        self.dropout = dropout
        self.pause = pause

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(16, 1))

    def build_data(self) -> Splits:
        numbers = torch.randn(self.samples, 8, generator=torch.Generator().manual_seed(0))
        return Splits(*split(TensorDataset(numbers, numbers.sum(1, keepdim=True)), [0.8, 0.1, 0.1], 0))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if self.pause:
            time.sleep(self.pause)
        numbers, wanted = batch
        return Loss(((model(numbers) - wanted) ** 2).sum())


def config(path: Path | str, **training: Any) -> dict[str, Any]:
    """A configuration that trains a Toy in a second."""
    return {
        "name": "toy",
        "training": {
            "path": str(path),
            "num_epochs": 3,
            "batch_size": 8,
            "device": "cpu",
            "optimizer_type": torch.optim.AdamW,
            "optimizer_kwargs": {"lr": 0.01},
            "log_every": 1,
            **training,
        },
    }


def digest(model: nn.Module) -> str:
    """All of its weights in one word."""
    data = b"".join(part.detach().contiguous().numpy().tobytes() for part in model.state_dict().values())
    return hashlib.sha256(data).hexdigest()


class NowAndThen(nn.Linear):
    """Adds to what it gets, if that is positive in the mean; else its weights get no gradient."""

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers + super().forward(numbers) if bool(numbers.mean() > 0) else numbers


class Sensitive(Toy):
    """Buffers, noise in training and in validation, unequal counts, and a state of its own.

    `partly`: with a part that only some micro-batches use.
    """

    def __init__(self, counted: bool = True, partly: bool = False):
        super().__init__(samples=163)
        self.counted = counted
        self.partly = partly
        self.seen = 0.0

    def build_model(self) -> nn.Module:
        first = [NowAndThen(8, 8)] if self.partly else []
        wide = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)]
        return nn.Sequential(*first, *wide, nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 1))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        numbers, wanted = batch
        noise = torch.rand(len(numbers), 1) + torch.rand((), generator=self.state.generator)
        errors = ((model(numbers) - wanted + 0.1 * noise) ** 2).squeeze(1).float()
        if model.training:
            self.seen += 0.5 * float(errors.detach().sum())
        if not self.counted:
            return Loss(errors.sum(), metrics={"noise": noise.sum()})
        weights = (numbers[:, 0].abs() * 10).ceil()
        return Loss((errors * weights).sum(), weights.sum(), {"noise": noise.sum()})

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Outcome(NamedTuple):
    """All that must be the same."""

    weights: str
    judged: str
    optimizer: list[torch.Tensor]
    trained: list[dict[str, float]]
    validated: list[dict[str, float]]
    lines: list[dict[str, Any]]
    seen: float
    best: str


def train(task: Sensitive, fields: dict[str, Any]) -> Outcome:
    """A training to its end on this rank; its group is left in order."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, fields, task)
    training, validation, _ = trainer.prepare_dataloaders()
    try:
        trained, validated = trainer.run_training(training, validation)
    except StoppedEarly:
        cleanup_ddp()
        raise
    moments = trainer.engine.optimizer.state_dict()["state"].values()
    best = trainer.checkpoints.best()
    assert best is not None
    outcome = Outcome(
        digest(trainer.model),
        digest(trainer.engine.judged),
        [local(part) for each in moments for part in each.values() if isinstance(part, torch.Tensor)],
        trained,
        validated,
        lasting_lines(trainer.folder),
        task.seen if me.rank == 0 else 0.0,
        best.name,
    )
    cleanup_ddp()
    return outcome


def lasting_lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what no clock gives twice."""
    passing = {"time", "checkpoint/stall", *(f"train/{name}" for name in TIMED)}
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in passing} for line in lines]


def same(mine: Outcome, theirs: Outcome) -> None:
    """Bit for bit."""
    assert mine._replace(optimizer=[]) == theirs._replace(optimizer=[])
    assert len(mine.optimizer) == len(theirs.optimizer)
    for one, other in zip(mine.optimizer, theirs.optimizer, strict=True):
        assert torch.equal(one, other)


def with_checkpoints(path: Path, **training: Any) -> dict[str, Any]:
    """A configuration that trains a Sensitive, and saves often."""
    often = {"num_epochs": 3, "batch_size": 4, "checkpoint_every_steps": 3, "log_every": 2}
    return config(path, **{**often, **training})


class Ranks:
    """Processes, each with the environment that castoff's launcher sets.

    Each leads a process group of its own. `fresh`: in new interpreters, not forked from a warm one.
    """

    def __init__(
        self, folder: Path, world_size: int, environ: Mapping[str, str] | None = None, *, fresh: bool = False
    ):
        self.folder = folder
        self.world_size = world_size
        self.environ = dict(environ or {})
        self.fresh = fresh
        self.processes: list[ForkedRank | subprocess.Popen[bytes]] = []

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        pickled = self.folder / "job"
        pickled.write_bytes(pickle.dumps((function, arguments)))
        port = free_port()
        for rank in range(self.world_size):
            given: dict[str, object] = {
                "RANK": rank,
                "WORLD_SIZE": self.world_size,
                "LOCAL_RANK": rank,
                "NODE_RANK": 0,
            }
            given |= {"LOCAL_WORLD_SIZE": self.world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            marks = {"CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": f"{rank}/{self.world_size}"}
            environ = {**os.environ, **{k: str(v) for k, v in given.items()}, **marks, **self.environ}
            environ["PYTHONPATH"] = str(Path(__file__).parents[2])
            answer, log = self.folder / f"answer-{rank}", self.folder / f"log-{rank}"
            job = Job(pickled, function.__module__, answer, log, environ, str(Path.cwd()))
            if self.fresh:
                self.processes.append(_fresh(pickled, answer, log, environ))
            else:
                self.processes.append(ForkedRank(job))

    def end(self) -> list[int]:
        """Their exit codes."""
        try:
            return [process.wait(patience.SECONDS) for process in self.processes]
        finally:
            self.kill()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def log(self, rank: int) -> str:
        return (self.folder / f"log-{rank}").read_text()

    def answers(self) -> list[Any]:
        """What the function gave on each rank; all must have done well."""
        codes = self.end()
        logs = [f"rank {rank}: {code}\n{self.log(rank)}" for rank, code in enumerate(codes) if code]
        assert not logs, "\n".join(logs)
        return [
            pickle.loads((self.folder / f"answer-{rank}").read_bytes()) for rank in range(self.world_size)
        ]


def _fresh(pickled: Path, answer: Path, log: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    code = f"from pathlib import Path\nfrom {perform.__module__} import perform\n"
    code += f"perform(Path({str(pickled)!r}), Path({str(answer)!r}))"
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-c", code], env=environ, stdout=file, stderr=file, start_new_session=True
        )


def run(
    function: Callable[..., Any], *arguments: Any, folder: Path, world_size: int, **environ: str
) -> list[Any]:
    """A function on so many ranks; what it gave on each."""
    ranks = Ranks(folder, world_size, environ)
    ranks.start(function, *arguments)
    return ranks.answers()


_EFFECTS = {"open", "os.rename", "os.mkdir", "os.symlink", "shutil.rmtree", "os.remove", "os.rmdir"}


def die_at_effect(number: int) -> Callable[[], int]:
    """Have this process killed right before its number-th effect on the disk; how many there were.

    Effects are files opened, names changed, and each flush, by the thread that writes checkpoints:
    what the training and its loaders do beside it comes at any time.
    """
    effects = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal effects
        if event in _EFFECTS and threading.current_thread().name == "checkpoint":
            effects += 1
            if effects == number:
                os.kill(os.getpid(), signal.SIGKILL)

    flush = os.fsync

    def counted_flush(descriptor: Any) -> None:
        count("os.rename", ())
        flush(descriptor)

    vars(os)["fsync"] = counted_flush  # until the process ends
    sys.addaudithook(count)
    return lambda: effects
