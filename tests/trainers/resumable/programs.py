"""Trainings by hand, by Lightning and by Hugging Face's Trainer, that stop or die at a step."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from castoff.trainers import resumable
from castoff.trainers.distributed import requests, stopping
from castoff.trainers.distributed.process_group import cleanup_ddp
from tests.trainers.toys import digest


class Numbers(Dataset[Any]):
    """Samples with noise of their own."""

    def __init__(self, noise: float = 0.1):
        self.noise = noise

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        numbers = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return {
            "x": numbers + self.noise * torch.rand(4) if self.noise else numbers,
            "labels": numbers.sum()[None],
        }


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))


def interrupt(step: int, *, stop_at: int = -1, die_at: int = -1) -> None:
    """Ask for a stop as a job's script does, or die, if this is the step."""
    if step == stop_at:
        Path(os.environ["CASTOFF_STOP_FILE"]).touch()
    if step == die_at:
        os.kill(os.getpid(), signal.SIGKILL)


def hear_at_once() -> None:
    """As where steps take long; these would be over before the request is noticed."""
    requests._LOOK_EVERY = stopping._MESSAGE_EVERY = 0.0


def join() -> None:
    if int(os.environ["WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")


def by_hand(folder: Path, when: dict[str, int], workers: int = 0) -> tuple[str, float]:
    """The weights, and this rank's sum of losses."""
    hear_at_once()
    join()
    bare = network()
    model = DistributedDataParallel(bare) if dist.is_initialized() else bare
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    loader = resumable.Loader(Numbers(), 4, shuffle=True, num_workers=workers)
    run = resumable.Run(folder, save_every=4, model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.epochs(3):
        for batch in run.batches(loader):
            loss = ((model(batch["x"]) - batch["labels"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.state["losses"] = run.state.get("losses", 0.0) + loss.item()
            interrupt(run.step, **when)
        scheduler.step()
        run.state["losses"] += torch.rand(()).item()  # noise, as in a validation
    cleanup_ddp()
    return digest(bare), run.state["losses"]
