"""A training by Hugging Face's Trainer, which stops or dies at a step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from castoff.trainers import resumable
from tests.trainers.resumable.programs import Numbers, hear_at_once, interrupt, network
from tests.trainers.toys import digest


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": ((self.network(x) - labels) ** 2).mean()}


class Interrupt(TrainerCallback):
    def __init__(self, when: dict[str, int]):
        self.when = when

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        interrupt(state.global_step, **self.when)


def by_hugging_face(folder: Path, when: dict[str, int], workers: int = 0) -> str:
    """The weights."""
    hear_at_once()
    callback = resumable.trainer_callback()
    settings = TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=3,
        save_steps=4,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_num_workers=workers,
        ddp_backend="gloo" if os.environ["WORLD_SIZE"] != "1" else None,
    )
    model = Model()
    trainer = Trainer(model, settings, train_dataset=Numbers(noise=0), callbacks=[callback, Interrupt(when)])
    trainer.train(resume_from_checkpoint=callback.newest())
    return digest(model.network)
