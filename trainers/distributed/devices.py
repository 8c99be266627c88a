"""A device's properties, how much of its memory a process may use, and its numerical precision."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import psutil
import torch

_UNKNOWN = float("nan")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Use(NamedTuple):
    """How a rank uses its device; NaN where that does not tell."""

    memory: float
    """In 10^9 bytes: an accelerator's peak since the start, a CPU's memory of this process now."""
    allocated: float
    """In 10^9 bytes: what tensors take now."""
    reserved: float
    """In 10^9 bytes: what torch has taken from the device, for tensors to come, too."""
    utilization: float
    """Part of the last moments in which the device computed, as its driver has it, from 0 to 1."""


def use_of(device: torch.device) -> Use:
    """The memory that this process has of a device, read without waiting for the device."""
    if device.type == "cpu":
        return Use(_process(os.getpid()).memory_info().rss / 1e9, _UNKNOWN, _UNKNOWN, _UNKNOWN)
    if device.type == "mps":
        allocated, reserved = torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory()
        return Use(allocated / 1e9, allocated / 1e9, reserved / 1e9, _UNKNOWN)
    module = torch.get_device_module(device)
    return Use(
        module.max_memory_allocated(device) / 1e9,
        module.memory_allocated(device) / 1e9,
        module.memory_reserved(device) / 1e9,
        _utilization(module, device),
    )


def device_name(device: torch.device) -> str:
    """What a device calls itself, as `NVIDIA A100-SXM4-40GB`; of a CPU and the like, its type."""
    ask = None if device.type == "cpu" else getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if ask is None else str(ask(device))


@cache
def _process(pid: int) -> psutil.Process:
    """Made once, because psutil reads then when the process began."""
    return psutil.Process(pid)


def _utilization(module: Any, device: torch.device) -> float:
    ask = getattr(module, "utilization", None)
    if ask is None:
        return _UNKNOWN
    try:
        return float(ask(device)) / 100
    except Exception:  # noqa: BLE001  # no NVML, a driver that refuses, a part of a device
        return _UNKNOWN


def limit_memory(device: torch.device, part: float) -> None:
    """Let this process take so much of a device's memory, where torch can see to it."""
    limit = limiter(device)
    if limit is not None:
        limit(part, *([] if device.type == "mps" else [device]))


def limiter(device: torch.device) -> Callable[..., None] | None:
    """The function that limits a process's memory on a device; None if torch has none."""
    if device.type == "cpu":
        return None
    found: Callable[..., None] | None = getattr(
        torch.get_device_module(device), "set_per_process_memory_fraction", None
    )
    return found


def computing(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Around what is computed in a precision of `training.precision`."""
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, _HALF[precision])
