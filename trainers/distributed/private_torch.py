"""All uses of torch's private names; a test of each detects if another version of torch lacks it."""

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
from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker as _worker

__all__ = [
    "DispatchMode",
    "ExceptionWrapper",
    "Store",
    "TCPStore",
    "after_backward",
    "begun_collectives",
    "cpu_attention",
    "default_store",
    "die_with_parent",
    "dump_memory",
    "end_workers",
    "hide_worker",
    "import_compiler",
    "in_backward",
    "in_bad_fork",
    "is_view",
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
    """Multiply tensors in place, in a few kernels for all; the sequence must not be empty."""
    torch._foreach_mul_(list(tensors), factor)


def lerp_all(tensors: Sequence[Tensor], towards: Sequence[Tensor], weight: float) -> None:
    """Interpolate each tensor in place towards another one by `weight`."""
    torch._foreach_lerp_(list(tensors), list(towards), weight)


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The norm of each tensor."""
    return torch._foreach_norm(list(tensors))


def is_view(tensor: Tensor) -> bool:
    """Whether autograd regards a tensor as a view of another one."""
    return tensor._is_view()


def version_of(tensor: Tensor) -> int:
    """A tensor's version, which grows with each in-place change."""
    return tensor._version


# --- Training -----------------------------------------------------------------------------------


def after_backward(callback: Callable[[], object]) -> None:
    """Call `callback` at the end of the running backward pass, in the order of registration."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(callback)


def rebuild_buckets(wrapped: DistributedDataParallel) -> None:
    """Rebuild DDP's buckets, as the next forward pass would do first; later calls do nothing.

    Raises:
        RuntimeError: the last backward pass has not reached all parameters; the error names them.
    """
    wrapped.reducer._rebuild_buckets()


def mark_as_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Keep a scheduler from warning that it was stepped before the optimizer."""
    vars(optimizer)["_opt_called"] = True


def cpu_attention() -> tuple[Any, Any]:
    """The operations that compute attention on a CPU, forward and backward."""
    operations = torch.ops.aten
    return (
        operations._scaled_dot_product_flash_attention_for_cpu,
        operations._scaled_dot_product_flash_attention_for_cpu_backward,
    )


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() != -1


def dump_memory(device_module: Any, path: str) -> None:
    """Write a snapshot of an accelerator's memory, with stacks if torch records them.

    Raises:
        AttributeError: torch has none for this device.
    """
    device_module.memory._dump_snapshot(path)


# --- Ranks --------------------------------------------------------------------------------------


def default_store() -> Store:
    """The store through which all ranks connected."""
    return _get_default_store()


def set_group_timeout(seconds: float, group: dist.ProcessGroup) -> None:
    """Set the timeout of a group's later collectives."""
    set_timeout = getattr(dist, "set_timeout", _set_pg_timeout)  # torch 2.14 warns of the private one
    set_timeout(timedelta(seconds=seconds), group)


def begun_collectives() -> int:
    """Number of collectives begun by this rank in the default group; 0 if the backend does not count."""
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
    """Have the kernel send this process a signal when the thread that forked it ends."""
    _prctl_pr_set_pdeathsig(signal)


def end_workers(loader: DataLoader[Any]) -> None:
    """End the workers that a loader keeps between epochs.

    torch does so when the loader is freed. If the cyclic garbage collector frees it, the queue that would
    tell a worker to end is gone by then, and torch waits 5 s for each worker and kills it.
    """
    iterator: Any = loader._iterator
    loader._iterator = None
    if iterator is not None:
        iterator._shutdown_workers()


def hide_worker() -> None:
    """Make get_worker_info() return None in a loader's worker."""
    _worker._worker_info = None


def in_bad_fork(device_module: Any) -> bool:
    """Whether an accelerator is unusable because this process was forked from one that has used it."""
    return bool(device_module._is_in_bad_fork())
