"""A device's name and use, a limit on its memory, and autocast in its precision."""

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
    """A rank's use of its device; NaN if unknown."""

    memory: float
    """Memory in 10^9 bytes: an accelerator's peak since the start; on a CPU the process's memory now."""
    allocated: float
    """Memory of tensors now, in 10^9 bytes."""
    reserved: float
    """Memory that torch has reserved on the device, used or not, in 10^9 bytes."""
    utilization: float
    """Fraction of the driver's last sampling period in which the device computed, from 0 to 1."""


def use_of(device: torch.device) -> Use:
    """Read this process's use of a device, without waiting for the device."""
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
    """A device's name, such as `NVIDIA A100-SXM4-40GB`; if it has none, as a CPU, its type."""
    ask = None if device.type == "cpu" else getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if ask is None else str(ask(device))


@cache
def _process(pid: int) -> psutil.Process:
    """psutil's object of a process, cached because making it reads the process's start time."""
    return psutil.Process(pid)


def _utilization(module: Any, device: torch.device) -> float:
    ask = getattr(module, "utilization", None)
    if ask is None:
        return _UNKNOWN
    try:
        return float(ask(device)) / 100
    except Exception:  # noqa: BLE001  # no NVML, a driver that refuses, a MIG slice
        return _UNKNOWN


def limit_memory(device: torch.device, part: float) -> None:
    """Limit this process to the fraction `part` of a device's memory, if torch can."""
    limit = limiter(device)
    if limit is not None:
        limit(part, *([] if device.type == "mps" else [device]))


def limiter(device: torch.device) -> Callable[..., None] | None:
    """The function that limits a process's memory on a device; None if torch has none."""
    if device.type == "cpu":
        return None
    set_fraction: Callable[..., None] | None = getattr(
        torch.get_device_module(device), "set_per_process_memory_fraction", None
    )
    return set_fraction


def computing(device: torch.device, precision: str, *, cache: bool = True) -> AbstractContextManager[Any]:
    """A context that computes in `precision`, one of `training.precision`.

    With `cache`, the weights in half precision are kept until its end, for a second use.
    """
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, _HALF[precision], cache_enabled=cache)
