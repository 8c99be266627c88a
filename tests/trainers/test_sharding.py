"""Trainings with sharded weights: validations, checkpoints, and what is left at the end."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.local import local
from castoff.trainers.optimization.wrapping import prepared_model
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.model import DiffusionTransformer, shape_of
from castoff.trainers.task import Loss
from tests.trainers.optimization.test_engine import engine_of, layers, trained
from tests.trainers.rounding import assert_rounded
from tests.trainers.toys import Toy, config, digest, lasting_lines, run

pytestmark = pytest.mark.usefixtures("for_real")

SGD = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.01, "momentum": 0.9}}


class Kept(Toy):
    """Notes what an export and an evaluation get."""

    exported: list[str]

    def build_model(self) -> nn.Module:
        self.exported = []
        return super().build_model()

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        assert not model.training
        self.exported.append(digest(model))


def fields(path: Path, strategy: str, epochs: int, **training: Any) -> dict[str, Any]:
    options = {**SGD, "num_epochs": epochs, "ema_decay": 0.9, "log_every": 5, **training}
    monitoring = {"log_gradients": True, "log_weights": True}
    made = config(path, **options)
    return {**made, "parallel": {"strategy": strategy}, "monitoring": monitoring}


def train(given: dict[str, Any]) -> dict[str, Any]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    context = initialize_ddp(rank, size, device="cpu")
    task = Kept(dropout=0.0)
    trainer = TrainerDDP(rank, given, task)
    training, validation, test = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    last = [each.detach() for each in trainer.model.parameters()]
    alone = dict(trainer.run_test(test)) if rank == size - 1 else {}
    context.barrier("the test of one rank alone")
    trainer.take_best()
    cleanup_ddp()
    return {
        "last": last,
        "best": digest(trainer.engine.judged),
        "alone": alone,
        "tested": dict(trainer.run_test(test)),
        "validated": trainer.val_data,
        "exported": task.exported,
        "lines": lasting_lines(trainer.folder) if rank == 0 else [],
    }


def test_a_training_is_that_of_ddp(tmp_path: Path) -> None:
    """Its validations, its metrics, and the test that one rank makes alone, to rounding."""
    sharded = run(train, fields(tmp_path / "fsdp", "fsdp", 2), folder=tmp_path / "one", world_size=2)
    whole = run(train, fields(tmp_path / "ddp", "ddp", 2), folder=tmp_path / "two", world_size=2)
    for mine, theirs in zip(sharded, whole, strict=True):
        for one, other in zip(mine["last"], theirs["last"], strict=True):
            assert_rounded(one, other)
        for name in ("validated", "lines", "alone", "tested"):
            _alike(mine[name], theirs[name])
    first, last = sharded
    assert first["best"] == last["best"]
    assert first["tested"] == last["alone"] == last["tested"]
    assert len(first["exported"]) == 2
    assert last["exported"] == []
    for strategy, times in (("ddp", True), ("fsdp", False)):
        (log,) = (tmp_path / strategy).rglob("metrics.jsonl")
        assert ("train/communication" in log.read_text()) is times


def _alike(mine: Any, theirs: Any) -> None:
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            _alike(value, theirs[name])
    elif isinstance(mine, list):
        for one, other in zip(mine, theirs, strict=True):
            _alike(one, other)
    elif isinstance(mine, float):
        assert mine == pytest.approx(theirs, rel=1e-3, nan_ok=True)
    else:
        assert mine == theirs


def test_a_run_may_change_its_strategy(tmp_path: Path) -> None:
    """And the number of its ranks."""
    for epochs, (strategy, size) in enumerate([("ddp", 2), ("fsdp", 4), ("ddp", 2)], start=1):
        path, micros = tmp_path / "both", 4 // size
        given = fields(path, strategy, epochs, batch_size=4, gradient_accumulation_steps=micros)
        answers = run(train, given, folder=tmp_path / strategy, world_size=size)
    given = fields(tmp_path / "ddp", "ddp", 3, batch_size=4, gradient_accumulation_steps=2)
    (whole, _) = run(train, given, folder=tmp_path / "whole", world_size=2)
    for mine, theirs in zip(answers[0]["last"], whole["last"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


# --- Memory ---------------------------------------------------------------------------------------

WIDE = settings.Model(size="mini", hidden_size=512, n_blocks=8)


class Wide(Toy):
    """A network of sedd whose blocks are large and compute little."""

    def build_model(self) -> nn.Module:
        return DiffusionTransformer(shape_of(WIDE), scale_by_sigma=False)


def proteins(model: nn.Module) -> Loss:
    tokens = torch.randint(0, 20, (1, 4))
    return Loss(model(tokens, torch.rand(1), False).square().sum())


def train_within(strategy: str) -> str:
    """What comes of a training in less memory than Adam's state of all weights takes."""
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 16)  # else the C library keeps what is freed
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = initialize_ddp(rank, size, device="cpu")
    fields = {"parallel": {"strategy": strategy}}
    trained(engine_of(layers(), Config.of({**config("out"), **fields}), place), place, 1, "samples")
    weights = 4 * sum(each.numel() for each in Wide().build_model().parameters())
    resource.setrlimit(resource.RLIMIT_DATA, (_data() + 19 * weights // 10, resource.RLIM_INFINITY))
    made = Config.of({**config("out"), **fields})
    found = "done"
    try:
        engine = engine_of(prepared_model(Wide(), made, place), made, place)
        with engine.wrapped():
            for step in range(2):
                engine.begin(step)
                engine.backward(engine.loss(proteins), size, 1, last=True)
                engine.apply()
            engine.begin(2)  # without gradients
            with engine.gathered():
                pass
            state = sum(local(each).nbytes for each in _state(engine.optimizer))
            found = f"done: {state / weights:.1f}"
            engine.optimizer.state.clear()
    except (RuntimeError, MemoryError) as error:
        found = "out of memory" if "alloc" in str(error) else repr(error)
    cleanup_ddp()
    return found


def _state(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [each for state in optimizer.state.values() for each in state.values()]


def _data() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line)
    return int(line.split()[1]) * 1024


_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of malloc.h."""


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's data")
@pytest.mark.parametrize(("strategy", "expected"), [("fsdp", "done: 0.5"), ("ddp", "out of memory")])
def test_a_model_whose_optimizer_would_not_fit(strategy: str, expected: str, tmp_path: Path) -> None:
    """Adam's state takes twice the memory of the weights, of which each rank may use 1.9 times."""
    assert run(train_within, strategy, folder=tmp_path, world_size=4) == 4 * [expected]
