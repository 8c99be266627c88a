"""Programs that know nothing of castoff, for `test_placement`: each rank writes down where it found itself.

python programs.py env|accelerate|lightning
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist


def env() -> tuple[int, int, int]:
    """What init_process_group makes of `env://`; the local rank as everybody takes it."""
    dist.init_process_group("gloo")
    return dist.get_rank(), int(os.environ["LOCAL_RANK"]), dist.get_world_size()


def accelerate() -> tuple[int, int, int]:
    from accelerate import Accelerator

    found = Accelerator(cpu=True)
    return found.process_index, found.local_process_index, found.num_processes


def lightning() -> tuple[int, int, int]:
    import pytorch_lightning as pl

    class Nothing(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, *_: object) -> torch.Tensor:
            return self.weight.sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters())

        def train_dataloader(self) -> list[int]:
            return [0]

    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=local,
        num_nodes=int(os.environ["WORLD_SIZE"]) // local,
        max_steps=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Nothing())
    return trainer.global_rank, trainer.local_rank, trainer.world_size


def main() -> None:
    rank, local_rank, world_size = {"env": env, "accelerate": accelerate, "lightning": lightning}[
        sys.argv[1]
    ]()
    total = torch.ones(1) * (rank + 1)
    dist.all_reduce(total)
    connected = psutil.Process().net_connections("tcp")
    seen: dict[str, Any] = {
        "placed": [rank, local_rank, world_size],
        "total": int(total),
        "host": os.uname().nodename,
        "addresses": sorted({one.raddr.ip.removeprefix("::ffff:") for one in connected if one.raddr}),
    }
    (Path(os.environ["PROBE_FOLDER"]) / f"rank-{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
