"""The same training by hand, by castoff, Fabric, accelerate and Lightning: as each one's guide writes it.

All have AdamW, bucket views and a data loader without workers; none validates or saves. castoff alone
writes a log, every 50 steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from bench.relay import Turn
from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.task import Loss, Splits, Task


class Work(NamedTuple):
    """What is trained: three layers of a width, for some optimizer steps."""

    width: int
    steps: int
    batch_size: int = 32
    """Samples of a rank's forward pass."""
    accumulation: int = 1
    """Forward passes of an optimizer step."""
    ranks: int = 1

    def model(self) -> nn.Module:
        """The same in all loops."""
        torch.manual_seed(0)
        width = self.width
        inner = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        return nn.Sequential(*inner, nn.Linear(width, 1))

    def data(self) -> TensorDataset:
        """As many samples as the steps take. They overlap in memory, so thousands of steps need none."""
        samples = self.steps * self.accumulation * self.batch_size * self.ranks
        numbers = torch.randn(samples + self.width, generator=torch.Generator().manual_seed(0))
        held = numbers.unfold(0, self.width, 1)[:samples]
        return TensorDataset(held, held[:, :1])


Loop: TypeAlias = Callable[[Work, Path, Turn], None]
"""Trains on this rank; the folder is its own."""


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def _by_hand(work: Work, turn: Turn, *, no_sync: bool) -> None:
    """What one writes without a trainer: no log, no seeds, nothing is checked, and nothing can stop it."""
    model = work.model()
    data = work.data()
    loader: DataLoader[Any] = DataLoader(data, work.batch_size, shuffle=True)
    if work.ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        loader = DataLoader(data, work.batch_size, sampler=DistributedSampler(data))
    optimizer = optimizer_of(model)
    model.train()
    for number, (given, wanted) in enumerate(loader, 1):
        turn()
        last = number % work.accumulation == 0
        alone = no_sync and not last
        with model.no_sync() if alone and isinstance(model, DistributedDataParallel) else nullcontext():
            loss = mse_loss(model(given), wanted) / work.accumulation
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def by_hand(work: Work, folder: Path, turn: Turn) -> None:
    """Where it accumulates, it reduces the gradients of every forward pass."""
    _by_hand(work, turn, no_sync=False)


def by_hand_with_no_sync(work: Work, folder: Path, turn: Turn) -> None:
    """The same, but it reduces gradients once an optimizer step."""
    _by_hand(work, turn, no_sync=True)


class Layers(Task):
    """The work, for castoff."""

    rng_sources = ("torch",)

    def __init__(self, work: Work, turn: Turn):
        self.work = work
        self.turn = turn

    def build_model(self) -> nn.Module:
        return self.work.model()

    def build_data(self) -> Splits:
        data = self.work.data()
        return Splits(data, data, data)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        self.turn()
        given, wanted = batch
        return Loss(mse_loss(model(given), wanted, reduction="sum"))


def castoff(work: Work, folder: Path, turn: Turn) -> None:
    """A task and a configuration."""
    train_with_castoff(Layers(work, turn), folder)


def train_with_castoff(
    task: Layers, folder: Path, trainer: type[TrainerDDP] = TrainerDDP, **training: Any
) -> None:
    """Train a task once through its data."""
    work, me = task.work, RankEnv.detect()
    config = {
        "name": "bench",
        "training": {
            "path": str(folder),
            "num_epochs": 1,
            "device": "cpu",
            "batch_size": work.batch_size,
            "gradient_accumulation_steps": work.accumulation,
            "optimizer_type": torch.optim.AdamW,
            "optimizer_kwargs": {"lr": 1e-3},
            **training,
        },
    }
    made = trainer(me.rank, config, task)
    train, _, _ = made.prepare_dataloaders()
    made.run_training(train, None)


def fabric(work: Work, folder: Path, turn: Turn) -> None:
    """Lightning's Fabric."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    strategy = DDPStrategy(gradient_as_bucket_view=True) if work.ranks > 1 else "auto"
    made = Fabric(accelerator="cpu", devices=work.ranks, strategy=strategy)
    made.launch()
    bare = work.model()
    model, optimizer = made.setup(bare, optimizer_of(bare))
    loader = made.setup_dataloaders(DataLoader(work.data(), work.batch_size, shuffle=True))
    model.train()
    for given, wanted in loader:
        turn()
        optimizer.zero_grad()
        made.backward(mse_loss(model(given), wanted))
        optimizer.step()


def accelerate(work: Work, folder: Path, turn: Turn) -> None:
    """Hugging Face's accelerate."""
    from accelerate import Accelerator, DistributedDataParallelKwargs

    made = Accelerator(
        cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)]
    )
    bare = work.model()
    model, optimizer, loader = made.prepare(
        bare, optimizer_of(bare), DataLoader(work.data(), work.batch_size, shuffle=True)
    )
    model.train()
    for given, wanted in loader:
        turn()
        optimizer.zero_grad()
        made.backward(mse_loss(model(given), wanted))
        optimizer.step()


def lightning(work: Work, folder: Path, turn: Turn) -> None:
    """Lightning's Trainer, without its log, progress bar and checkpoints."""
    import pytorch_lightning
    from pytorch_lightning.strategies import DDPStrategy

    class Module(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = work.model()

        def training_step(self, batch: Any, number: int) -> Tensor:
            turn()
            given, wanted = batch
            return mse_loss(self.layers(given), wanted)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer_of(self.layers)

    trainer = pytorch_lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=work.ranks,
        strategy=DDPStrategy(gradient_as_bucket_view=True) if work.ranks > 1 else "auto",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    environ = dict(os.environ)
    trainer.fit(Module(), DataLoader(work.data(), work.batch_size, shuffle=True))
    os.environ.update(environ)  # it has removed WORLD_SIZE


LOOPS: dict[str, Loop] = {
    "by hand": by_hand,
    "the same again": by_hand,
    "by hand, with no_sync": by_hand_with_no_sync,
    "castoff": castoff,
    "Fabric": fabric,
    "accelerate": accelerate,
    "Lightning": lightning,
}
"""By the names that the tables have."""
