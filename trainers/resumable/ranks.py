"""This process among the ranks of a program that has its own process group, or none yet."""

from __future__ import annotations

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.wrapping import settle_buckets


def place() -> tuple[int, int]:
    """(rank, world size): the process group's or, before there is one, the launcher's."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    me = RankEnv.detect()
    return me.rank, me.world_size


def joined(how: str = "call torch.distributed.init_process_group() first") -> RankContext:
    """This process's rank, and its communication with the others through the program's group; `how` tells
    a user to join it.

    Raises:
        ConfigError: there are several ranks, and this one is in no group.
    """
    rank, world_size = place()
    if world_size > 1 and not dist.is_initialized():
        raise ConfigError(
            [
                f"resumable: this is rank {rank} of {world_size}, but it has joined no process group; {how}, "
                "or start one rank"
            ]
        )
    if dist.is_available() and dist.is_initialized():
        # DDP may be the last to let go of the group, under Python's GIL, for which gloo's thread may wait.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dist.group.WORLD))
    return RankContext(rank, world_size, _device())


def settle(model: nn.Module) -> None:
    """Have DDP round its first step as all later ones; all ranks must call it."""
    if not isinstance(model, DistributedDataParallel):
        return
    if not model.find_unused_parameters and not model.static_graph:
        settle_buckets(model)


def _device() -> torch.device:
    """Where tensors for other ranks must be."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or not dist.is_initialized() or dist.get_backend() in ("gloo", "mpi"):
        return torch.device("cpu")
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
