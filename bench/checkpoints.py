"""How long training halts for a checkpoint of 200 MB: castoff's, `torch.save`, and DCP's `async_save`.

The loops take turns in one process, and each saves in the middle of its lap. What is timed is the call that
saves, and nothing else: from the state's collection until the loop may change the weights again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from bench.loops import Layers, Work, optimizer_of, train_with_castoff
from bench.relay import Runner, Turn
from bench.training import ROUNDS, tenths, verdict
from castoff.trainers.ddp import TrainerDDP
from tests import patience

BAR = 0.20
"""Of torch.save's time."""
EVERY = 6
"""Steps between two saves."""
WIDTH = 2872
"""With AdamW's two moments, 198 MB."""


class Halts:
    """Seconds that each save of a loop took."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time one."""
        began = perf_counter()
        yield
        self.taken.append(perf_counter() - began)


def measure(rounds: int, width: int = WIDTH) -> dict[str, list[float]]:
    """Seconds of each save, and of copying the same tensors, bare.

    A round begins when all that was saved before is on the disk: nothing is written while another loop's
    save is timed, and none waits for the one before.
    """
    # A save falls in the middle of its lap; after the last lap only castoff saves, at its end.
    work = Work(width, EVERY * (rounds + 1) + EVERY // 2 + 1, batch_size=1)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # says DCP, which is right
        folder = Path(name)
        saving: dict[str, Saving] = {
            "castoff": Castoff(folder / "castoff"),
            "torch.save": TorchSave(folder / "saved.pt"),
            "DCP async_save": AsyncSave(folder / "dcp"),
        }
        runners = {each: Runner(partial(loop.run, work)) for each, loop in saving.items()}
        for runner in runners.values():
            runner.prepare()
            runner.run(EVERY // 2)
        for number in range(1, rounds + 2):
            for each, runner in runners.items():
                runner.run(EVERY)
                saving[each].until_durable(number * EVERY)
        for runner in runners.values():
            runner.finish()
        # Not the first, which makes buffers; nor castoff's at its end.
        taken = {each: loop.halts.taken[1 : rounds + 1] for each, loop in saving.items()}
    return {**taken, "copying": _copies(work, rounds)}


class Saving:
    """A training that saves every so many steps."""

    def __init__(self, path: Path):
        self.path = path
        self.halts = Halts()

    def run(self, work: Work, turn: Turn) -> None:
        """Train through the data once."""
        model = work.model()
        optimizer = optimizer_of(model)
        for number, (given, wanted) in enumerate(DataLoader(work.data(), work.batch_size), 1):
            turn()
            optimizer.zero_grad()
            mse_loss(model(given), wanted).backward()
            optimizer.step()
            if number % EVERY == 0:
                with self.halts.timed():
                    self.save(model, optimizer)

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """What training waits for."""
        raise NotImplementedError

    def until_durable(self, step: int) -> None:
        """Wait until what was saved after that step is on the disk."""
        raise NotImplementedError


class Castoff(Saving):
    """castoff's own."""

    def run(self, work: Work, turn: Turn) -> None:
        timed = self.halts.timed

        class Timed(TrainerDDP):
            def _save(self) -> None:
                with timed():
                    super()._save()

        train_with_castoff(Layers(work, turn), self.path, Timed, checkpoint_every_steps=EVERY)

    def until_durable(self, step: int) -> None:
        durable = f"*/checkpoints/step-{step:010d}"
        # Looks into no checkpoint: those that are written and removed meanwhile come and go.
        patience.until(lambda: next(self.path.glob(durable), None), f"{durable} never came")


class TorchSave(Saving):
    """As one writes it by hand."""

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, self.path)

    def until_durable(self, step: int) -> None:
        with self.path.open("rb") as held:
            os.fsync(held.fileno())


class AsyncSave(Saving):
    """torch's distributed checkpoint: copies, and writes on a thread."""

    _written: Future[Any]

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        written = async_save(state, checkpoint_id=self.path / str(len(self.halts.taken)), no_dist=True)
        assert isinstance(written, Future)
        self._written = written

    def until_durable(self, step: int) -> None:
        self._written.result(patience.SECONDS)
        shutil.rmtree(self.path)


def _copies(work: Work, rounds: int) -> list[float]:
    held = [each.detach() for each in work.model().parameters()] * 3
    buffers = [each.clone() for each in held]
    taken = []
    for _ in range(rounds):
        began = perf_counter()
        for buffer, tensor in zip(buffers, held, strict=True):
            buffer.copy_(tensor)
        taken.append(perf_counter() - began)
    return taken


def table(halts: dict[str, list[float]]) -> list[str]:
    """The lines that tell what came out."""
    medians = {name: statistics.median(taken) for name, taken in halts.items()}
    ratio = medians["castoff"] / medians["torch.save"]
    lines = [
        f"\nHow long training halts for a checkpoint of {WIDTH**2 * 2 * 3 * 4 / 1e6:.0f} MB, on one rank"
    ]
    for name, taken in halts.items():
        low, high = tenths(taken)
        lines.append(f"{name:14} {medians[name] * 1e3:5.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f})")
    lines.append(f"castoff over torch.save {ratio:.3f}, bar {BAR:.2f}: {verdict(ratio, BAR)}")
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)  # as a rank does
    print("\n".join(table(measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))))
