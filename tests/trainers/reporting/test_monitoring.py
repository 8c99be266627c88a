"""Whether ranks and devices are alike, and the norms of a model's parts."""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config, Monitoring
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed import devices
from castoff.trainers.distributed import process_group as distributed
from castoff.trainers.distributed.devices import Use, limit_memory, use_of
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.reporting.monitoring import Norms, columns, devices_of_ranks, gathered, losses_of_ranks
from castoff.trainers.reporting.running import Running
from castoff.trainers.reporting.throughput import TIMED, Throughput, report
from castoff.trainers.task import Loss
from tests.trainers.optimization.test_engine import engine_of
from tests.trainers.synchronisations import counted
from tests.trainers.toys import Toy, config, lasting_lines, run

NAN = float("nan")
GPU = torch.device("cuda", 0)


@given(
    st.integers(1, 5).flatmap(
        lambda size: st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=size, max_size=size)
    )
)
def test_one_sum_gathers_the_values_of_all_ranks(said: list[list[float]]) -> None:
    size = len(said)
    summed = [
        sum(column)
        for column in zip(*(columns(each, rank, size) for rank, each in enumerate(said)), strict=True)
    ]
    for rank, mine in enumerate(said):
        found = [column[rank] for column in gathered(summed, size)]
        assert found == pytest.approx(mine, nan_ok=True)


# Losses


def test_losses_of_ranks() -> None:
    assert losses_of_ranks([2.0]) == {}
    assert losses_of_ranks([NAN, NAN]) == {}
    found = losses_of_ranks([2.0, NAN, 5.0])
    assert math.isnan(found.pop("ranks/loss_1"))
    assert found == {"ranks/loss_min": 2.0, "ranks/loss_max": 5.0, "ranks/loss_0": 2.0, "ranks/loss_2": 5.0}
    assert set(losses_of_ranks([1.0] * 17)) == {"ranks/loss_min", "ranks/loss_max"}


class Uneven(Toy):
    """The loss of a rank is its number, for its samples."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        zero = super().loss(model, batch).total * 0
        rank = RankEnv.detect().rank
        return Loss(zero + (10.0 if rank else 1.0) * len(batch[0]))


def written(data: dict[str, Any]) -> list[dict[str, Any]]:
    """What a training on this rank has written."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trainer = TrainerDDP(me.rank, data, Uneven(64))
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
        return lasting_lines(trainer.folder)
    finally:
        cleanup_ddp()


@pytest.mark.usefixtures("for_real")
def test_each_ranks_loss_is_reported(tmp_path: Path) -> None:
    fields = config(tmp_path / "runs", num_steps=2, num_epochs=None, check_first_step=False)
    lines, _ = run(written, fields, folder=tmp_path, world_size=2)
    (first, *_) = [line for line in lines if "train/loss" in line]
    names = ("train/loss", "ranks/loss_min", "ranks/loss_max", "ranks/loss_0", "ranks/loss_1")
    assert [first[name] for name in names] == [5.5, 1.0, 10.0, 1.0, 10.0]


# Devices


def test_devices_of_ranks() -> None:
    uses = [Use(4.0, 1.0, 5.0, 0.9), Use(8.0, 2.0, 9.0, NAN), Use(6.0, 3.0, 7.0, 0.5)]
    assert devices_of_ranks(uses) == {
        "memory_gb": 8.0,
        "memory_allocated_gb": 3.0,
        "memory_reserved_gb": 9.0,
        "memory_balance": 0.5,
        "utilization": pytest.approx(0.7),
        "utilization_min": 0.5,
    }
    assert set(devices_of_ranks(uses)) < set(TIMED)
    assert devices_of_ranks([Use(2.0, NAN, NAN, NAN)]) == {"memory_gb": 2.0}


def gpus(monkeypatch: pytest.MonkeyPatch, **module: Any) -> None:
    """A module of torch for accelerators, with what it has of them."""
    held = {"max_memory_allocated": 3e9, "memory_allocated": 1e9, "memory_reserved": 4e9}
    functions = {name: lambda device, value=value: value for name, value in held.items()}
    made = types.SimpleNamespace(**{**functions, **module})
    monkeypatch.setattr(torch, "get_device_module", lambda device: made)


def refuses(device: torch.device) -> int:
    raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")


@pytest.mark.parametrize(
    ("module", "utilization"),
    [({}, NAN), ({"utilization": refuses}, NAN), ({"utilization": lambda device: 93}, 0.93)],
)
def test_measures_of_an_accelerator(
    module: dict[str, Any], utilization: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, **module)
    assert use_of(GPU) == pytest.approx(Use(3.0, 1.0, 4.0, utilization), nan_ok=True)
    running, throughput, place = Running(), Throughput(RankContext(0, 1, GPU), 10), RankContext(0, 1, GPU)
    running.add(torch.tensor(1.0), 1)
    throughput.step(1)
    found = report(running, throughput, place)
    assert (found["train/memory_allocated_gb"], found["train/memory_reserved_gb"]) == (1.0, 4.0)
    assert found.get("train/utilization", NAN) == pytest.approx(utilization, nan_ok=True)


def test_a_process_may_be_limited_to_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[Any, ...]] = []
    gpus(monkeypatch, set_per_process_memory_fraction=lambda *given: limits.append(given))
    limit_memory(GPU, 0.85)
    limit_memory(torch.device("mps"), 0.5)  # takes no device
    assert limits == [(0.85, GPU), (0.5,)]
    gpus(monkeypatch)
    limit_memory(GPU, 0.85)  # a torch that cannot
    assert devices.limiter(GPU) is None
    assert devices.limiter(torch.device("cpu")) is None


def test_a_trainings_limit_reaches_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[torch.device, float]] = []
    monkeypatch.setattr(distributed, "limit_memory", lambda *given: limits.append(given))
    for part in (None, 0.5):
        distributed.context_of(0, Config.of(config(tmp_path, max_memory_per_gpu=part)))
    assert limits == [(torch.device("cpu"), 0.5)]


def test_a_limit_has_no_effect_on_a_cpu(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    trainer = TrainerDDP(0, config(tmp_path, num_epochs=1, max_memory_per_gpu=0.5), Toy(16))
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert "training.max_memory_per_gpu: has no effect" in caplog.text


# Norms


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 1)])
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        numbers = self.first(numbers)
        for block in self.blocks:
            numbers = block(numbers)
        return numbers * self.scale


class OfParts(Toy):
    def build_model(self) -> nn.Module:
        return Parts()


PARTS = ("first", "blocks.0", "blocks.1", "scale")


@pytest.mark.parametrize("asked", [{}, {"log_gradients": True}, {"log_weights": True}])
def test_norms_are_reported_where_they_are_asked_for(asked: dict[str, bool], tmp_path: Path) -> None:
    fields = {**config(tmp_path, num_epochs=1, clip_grad_norm=0.01), "monitoring": asked}
    trainer = TrainerDDP(0, fields, OfParts(40))
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    lines = [line for line in MetricsFile(trainer.folder / "metrics.jsonl").read() if "train/loss" in line]
    kinds = {"log_gradients": "gradients", "log_weights": "weights"}
    wanted = {f"{kinds[name]}/{part}" for name in asked for part in PARTS}
    for line in lines:
        assert {name for name in line if name.startswith(("gradients/", "weights/"))} == wanted
    if "log_gradients" in asked:
        for line in lines:
            whole = math.hypot(*(line[f"gradients/{part}"] for part in PARTS))
            assert whole == pytest.approx(min(line["train/grad_norm"], 0.01), rel=1e-4), "as it was clipped"
    if "log_weights" in asked:
        block = trainer.model.get_submodule("blocks.1")
        norm = math.hypot(*(float(each.detach().norm()) for each in block.parameters()))
        assert lines[-1]["weights/blocks.1"] == pytest.approx(norm)


def test_norms_wait_for_nothing() -> None:
    model, fields = Parts(), Config.of(config("out"))
    made = engine_of(model, fields, RankContext(0, 1, torch.device("cpu")))
    model(torch.ones(2, 8)).sum().backward()
    with counted() as seen:
        found = dict(Norms(Monitoring(log_gradients=True, log_weights=True)).of(made))
    assert len(found) == 2 * len(PARTS)
    assert seen.found == []
