"""Chooses a rank's device and backend."""

from __future__ import annotations

import re

import torch
import torch.distributed as dist

from castoff.trainers.distributed.errors import DistributedError

_ALIASES = {"ccl": "xccl", "xpu": "xccl", "cuda": "nccl", "cpu": "gloo"}


def choose_device(asked: str, local: int, index: int | None = None) -> torch.device:
    """The device of a local rank: the visible device `index`, else visible devices in turn, one per local
    rank.

    Raises:
        DistributedError: this host has no such device.
    """
    if asked == "cpu":
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        if asked == "auto":
            return torch.device("cpu")
        raise DistributedError(
            f"training.device is {asked}, but torch {torch.__version__} sees no such device here; write "
            "device: auto (or cpu), or load the module of a torch built for it"
        )
    if asked not in ("auto", accelerator.type):
        raise DistributedError(
            f"training.device is {asked}, but this host has {accelerator.type}; write auto"
        )
    count = max(torch.accelerator.device_count(), 1)
    if index is not None and index >= count > 1:
        raise DistributedError(
            f"this rank's device is {accelerator.type}:{index} (CASTOFF_DEVICE), but the rank sees "
            f"{count}; ask for as many devices as the ranks of a node need, or start fewer ranks on a "
            "node"
        )
    return torch.device(accelerator.type, (local if index is None else index) % count)


def backend_for(asked: str | None, device: torch.device) -> str:
    """The backend of a name or alias (ccl, xpu: xccl); for None or `auto` torch's default."""
    if asked in (None, "auto"):
        return str(dist.get_default_backend_for_device(device))
    return _ALIASES.get(str(asked), str(asked))


def available_backend(asked: str | None, device: torch.device) -> str:
    """The backend's name, after a check that this torch has it.

    Raises:
        DistributedError: torch does not have it.
    """
    used = backend_for(asked, device)
    lacking = [name for name in re.split(r"\w+:|,", used) if name and not dist.is_backend_available(name)]
    if lacking:
        raise DistributedError(
            f"parallel.backend: is {asked}, but this torch has no {', '.join(lacking)}; leave it out: "
            f"the default for {device.type} is {backend_for(None, device)}"
        )
    return used


def device_ids(device: torch.device) -> list[int] | None:
    """The `device_ids` of DistributedDataParallel: None on a CPU, else the device's index."""
    return None if device.type in ("cpu", "mps") else [device.index]
