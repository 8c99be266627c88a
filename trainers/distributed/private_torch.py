"""What the trainers use of torch beyond its public names; a test for each says what another torch lacks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore
from torch._utils import ExceptionWrapper
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout
from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as _worker

__all__ = [
    "ExceptionWrapper",
    "Store",
    "TCPStore",
    "after_backward",
    "begun_collectives",
    "default_store",
    "die_with_parent",
    "end_workers",
    "hide_worker",
    "import_compiler",
    "in_bad_fork",
    "lerp_all",
    "mark_as_stepped",
    "multiply_all",
    "norms",
    "rebuild_buckets",
    "set_group_timeout",
    "tree_map_only",
    "version_of",
]


# --- Tensors ------------------------------------------------------------------------------------


def multiply_all(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Each in place, in a few kernels for all; there must be some."""
    torch._foreach_mul_(list(tensors), factor)


def lerp_all(tensors: Sequence[Tensor], towards: Sequence[Tensor], weight: float) -> None:
    """Move each by that part of the way to another one."""
    torch._foreach_lerp_(list(tensors), list(towards), weight)


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The norm of each tensor."""
    return torch._foreach_norm(list(tensors))


def version_of(tensor: Tensor) -> int:
    """Grows with each change in place."""
    return tensor._version


# --- Training -----------------------------------------------------------------------------------


def after_backward(callback: Callable[[], object]) -> None:
    """Have something called when the backward pass is over that is running now, in the order of the calls."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(callback)


def rebuild_buckets(wrapped: DistributedDataParallel) -> None:
    """What the next forward pass does first; they are rebuilt once alone.

    Raises:
        RuntimeError: the last backward pass has not reached all parameters; it says which.
    """
    wrapped.reducer._rebuild_buckets()


def mark_as_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Have a scheduler not warn that it was stepped before the optimizer."""
    vars(optimizer)["_opt_called"] = True


# --- Ranks --------------------------------------------------------------------------------------


def default_store() -> Store:
    """The store by which the group of all has met."""
    return _get_default_store()


def set_group_timeout(seconds: float, group: dist.ProcessGroup) -> None:
    """How long collectives of a group wait from now on."""
    _set_pg_timeout(timedelta(seconds=seconds), group)


def begun_collectives() -> int:
    """How many this rank has begun in the group of all; 0 where the backend does not count."""
    world: Any = dist.group.WORLD
    try:
        return int(world._get_sequence_number_for_group())
    except RuntimeError:
        return 0


def import_compiler() -> None:
    """Import torch._dynamo, as DistributedDataParallel does when it is first made."""
    importlib.import_module("torch._dynamo")


# --- Processes ----------------------------------------------------------------------------------


def die_with_parent(signal: int) -> None:
    """Have the kernel send this process a signal when the thread that has forked it ends."""
    _prctl_pr_set_pdeathsig(signal)


def end_workers(loader: DataLoader[Any]) -> None:
    """End the workers that a loader keeps from one pass to the next.

    torch does so when the loader is garbage. Where that is found by the collector of circles, the queue that
    would tell a worker is gone by then, and torch waits 5 s for it, and kills it.
    """
    iterator: Any = loader._iterator
    loader._iterator = None
    if iterator is not None:
        iterator._shutdown_workers()


def hide_worker() -> None:
    """Have get_worker_info() say, in a loader's worker, that it is none."""
    _worker._worker_info = None


def in_bad_fork(device_module: Any) -> bool:
    """Whether an accelerator cannot be used, because this process was forked from one that has used it."""
    return bool(device_module._is_in_bad_fork())
