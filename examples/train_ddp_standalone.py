"""The training of train_ddp.py without a launcher: this program spawns its ranks, all on this machine.

python examples/train_ddp_standalone.py                          a rank for each device; two without devices
python examples/train_ddp_standalone.py --ranks 3 training.num_workers=4
CUDA_VISIBLE_DEVICES=3,4,5 python examples/train_ddp_standalone.py

It reads train_ddp.yaml from its folder, or the file of --config; an argument such as training.num_epochs=3
sets a field.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from castoff.trainers import Config
from castoff.trainers.gnn import TrainerDDP, cleanup_ddp, get_loader, initialize_ddp
from castoff.trainers.program.logs import setup_logging

logger = logging.getLogger(__name__)


def compute_loss(outputs: dict[int, Tensor], batch: Any) -> Tensor:
    """The mean loss of a batch: is each set manifold-like, and of which dimension, if it has one?"""
    manifold_like, dimension = batch.y.unbind(dim=1)
    has_dimension = (dimension > 0).float()
    errors = smooth_l1_loss(outputs[1].squeeze(1), dimension, reduction="none")
    guesses = binary_cross_entropy_with_logits(outputs[0].squeeze(1), manifold_like)
    loss: Tensor = guesses + (errors * has_dimension).mean()
    return loss


def train_ddp(rank: int, world_size: int, config: Config) -> None:
    """Train in one process; torch.multiprocessing.spawn passes its rank."""
    setup_logging(rank)  # rank 0 logs progress, the others only warnings
    torch.set_num_threads(max(torch.get_num_threads() // world_size, 1))  # the ranks share this machine
    logger.info("Process %d of %d started", rank, world_size)
    initialize_ddp(
        rank,
        world_size,
        config.parallel.master_addr,
        config.parallel.master_port,
        config.parallel.backend,
        device=config.training.device,
        timeout=config.parallel.start_timeout,
    )

    trainer = TrainerDDP(rank, config)
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    trainer.run_training(train_loader, val_loader)
    cleanup_ddp()  # no rank waits while rank 0 tests; after an error the process just ends
    if rank == 0:
        metrics = trainer.run_test(test_loader)
        logger.info("The best model is in %s; its test loss is %.3f", trainer.folder, metrics["loss"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="FIELD=VALUE")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("train_ddp.yaml"))
    parser.add_argument("--ranks", type=int, default=torch.accelerator.device_count() or 2)
    arguments = parser.parse_args()
    with arguments.config.open() as file:
        config = Config.of(yaml.load(file, get_loader()), arguments.overrides)
    spawn(train_ddp, args=(arguments.ranks, config), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
