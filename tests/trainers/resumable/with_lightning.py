"""A training by Lightning, which stops or dies at a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning
import torch

from castoff.launcher.ranks import RankEnv
from castoff.trainers import resumable
from tests.trainers.resumable.programs import Numbers, hear_at_once, interrupt, network
from tests.trainers.toys import digest


class Module(pytorch_lightning.LightningModule):
    def __init__(self, when: dict[str, int]):
        super().__init__()
        self.network = network()
        self.when = when

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        interrupt(self.global_step, **self.when)
        loss: torch.Tensor = ((self.network(batch["x"]) - batch["labels"]) ** 2).mean()
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def by_lightning(
    folder: Path,
    when: dict[str, int],
    workers: int = 0,
    accumulate: int = 1,
    save_every: int = 4,
    epochs: int = 3,
    trial: bool = False,
) -> str:
    """The weights. A trial has one step."""
    hear_at_once()
    callback = resumable.lightning_callback(folder, save_every=save_every)
    ranks = RankEnv.detect().world_size
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu",
        strategy="ddp" if ranks > 1 else "auto",
        devices=ranks,
        max_epochs=epochs,
        fast_dev_run=trial,
        accumulate_grad_batches=accumulate,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    module = Module(when)
    loader = resumable.Loader(Numbers(), 4, shuffle=True, num_workers=workers)
    trainer.fit(module, loader, ckpt_path=callback.newest())
    return digest(module.network)
