"""Small tasks that the tests train, and ranks to train them on."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from tests import patience
from tests.trainers.warm import ForkedRank, Job, perform
from trainers.core.sampling import split
from trainers.task import Loss, Splits, Task


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


class Ranks:
    """Processes that are each told who they are, as castoff's starter tells them.

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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(self.world_size):
            told: dict[str, object] = {
                "RANK": rank,
                "WORLD_SIZE": self.world_size,
                "LOCAL_RANK": rank,
                "NODE_RANK": 0,
            }
            told |= {"LOCAL_WORLD_SIZE": self.world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            marks = {"CASTOFF_STARTER": "local", "CASTOFF_RANK": f"{rank}/{self.world_size}"}
            environ = {**os.environ, **{k: str(v) for k, v in told.items()}, **marks, **self.environ}
            environ["PYTHONPATH"] = str(Path(__file__).parents[2])
            answer, log = self.folder / f"answer-{rank}", self.folder / f"log-{rank}"
            if self.fresh:
                self.processes.append(_fresh(pickled, answer, log, environ))
            else:
                self.processes.append(ForkedRank(Job(pickled, answer, log, environ, str(Path.cwd()))))

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
        assert set(codes) == {0}, "\n".join(self.log(rank) for rank, code in enumerate(codes) if code)
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
