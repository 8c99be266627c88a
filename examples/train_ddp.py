"""Train a graph network on causal sets with TrainerDDP, one process for each device.

torchrun --standalone --nproc_per_node=3 examples/train_ddp.py
castoff launch -n 3 -- python examples/train_ddp.py                       on this host, or in an allocation
srun --ntasks-per-node=4 python examples/train_ddp.py                     in a job
python -m torch.distributed.launch --nproc_per_node=3 examples/train_ddp.py   torchrun's predecessor
python examples/train_ddp.py                                              in one process

It reads train_ddp.yaml from its folder, or the file of --config; an argument such as training.num_epochs=3
sets a field.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from castoff.launcher.ranks import RankEnv
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


def read_config() -> Config:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="FIELD=VALUE")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("train_ddp.yaml"))
    # torch.distributed.launch passes this; LOCAL_RANK has the same value.
    parser.add_argument("--local-rank", "--local_rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with arguments.config.open() as file:
        return Config.of(yaml.load(file, get_loader()), arguments.overrides)


def main() -> None:
    me = RankEnv.detect()  # whichever launcher started this process: torchrun, castoff, srun, mpiexec
    setup_logging(me.rank)  # rank 0 logs progress, the others only warnings
    logger.info("Process %d of %d, by %s", me.rank, me.world_size, me.launcher)
    config = read_config()
    if me.world_size > 1:
        initialize_ddp(
            me.rank,
            me.world_size,
            backend=config.parallel.backend,
            device=config.training.device,
            timeout=config.parallel.start_timeout,
        )

    trainer = TrainerDDP(me.rank, config)
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    trainer.run_training(train_loader, val_loader)
    cleanup_ddp()  # no rank waits while rank 0 tests; after an error the process just ends
    if me.rank == 0:
        metrics = trainer.run_test(test_loader)
        logger.info("The best model is in %s; its test loss is %.3f", trainer.folder, metrics["loss"])


if __name__ == "__main__":
    main()
