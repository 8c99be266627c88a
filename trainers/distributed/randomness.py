"""Derives the seeds of all random numbers, so that no generator's state needs to be saved.

A step's seed is derived from (seed, rank, step) and a sample's from (seed, epoch, index), so a resumed run
draws the same numbers as an uninterrupted one, with any number of loader workers.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from castoff.trainers.distributed.private_torch import in_bad_fork

STEP, SAMPLE, MODEL, SPLIT, ORDER, TASK, EVALUATION = range(7)
"""The purpose of a seed: the first number it is derived from, so that no two purposes share seeds."""

GENERATORS = frozenset({"torch", "random", "numpy"})
"""The libraries whose global generators are seeded."""

_MASK = (1 << 64) - 1


def _mixed(state: int, numbers: Collection[int]) -> int:
    """Mix numbers into a state as in SplitMix64 (Steele et al., OOPSLA 2014), a round per number."""
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def derived(*numbers: int) -> int:
    """Derive a 63-bit seed from whole numbers."""
    return _mixed(0, numbers) >> 1


class Stream:
    """Seeds derived from the same first numbers, which are mixed only once.

    `Stream(SAMPLE, seed, epoch).seed(index)` is `derived(SAMPLE, seed, epoch, index)`.
    """

    def __init__(self, *numbers: int):
        self._state = _mixed(0, numbers)

    def seed(self, *numbers: int) -> int:
        """A 63-bit seed from the first numbers and these."""
        return _mixed(self._state, numbers) >> 1


def seed_all(seed: int, generators: Collection[str] = GENERATORS) -> None:
    """Seed torch's, Python's and, where it is loaded, numpy's global generators, or only those named.

    The device's generator is seeded, too, once the device is in use. `torch.manual_seed` is avoided: it takes
    0.3 ms if torch supports an accelerator that is not in use, because it queues the seeding for every
    device.
    """
    if "torch" in generators:
        torch.default_generator.manual_seed(seed)
        device = _device_in_use()
        if device is not None:
            device.manual_seed(seed)
    if "random" in generators:
        random.seed(seed)
    if "numpy" in generators:
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)


def rng_state(generators: Collection[str]) -> dict[str, object]:
    """The states of these libraries' global generators, for comparison."""
    by_library: dict[str, object] = {}
    if "torch" in generators:
        device = _device_in_use()
        states = [torch.default_generator.get_state(), *([device.get_rng_state()] if device else [])]
        by_library["torch"] = [state.tolist() for state in states]
    if "random" in generators:
        by_library["random"] = random.getstate()
    numpy = sys.modules.get("numpy")
    if "numpy" in generators and numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        by_library["numpy"] = [name, keys.tolist(), *rest]
    return by_library


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the global generators' states at the end of this context."""
    numpy, device = sys.modules.get("numpy"), _device_in_use()
    torch_state, python_state = torch.default_generator.get_state(), random.getstate()
    numpy_state = None if numpy is None else numpy.random.get_state()
    device_state = None if device is None else device.get_rng_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(torch_state)
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if device is not None:
            device.set_rng_state(device_state)


def _device_in_use() -> Any:
    """torch.cuda, torch.xpu …, if this process has used it; a forked worker has not."""
    module = _device_module()
    if module is None or not getattr(module, "is_initialized", lambda: not in_bad_fork(module))():
        return None
    return module


@cache
def _device_module() -> Any:
    if not torch.accelerator.is_available():
        return None
    return torch.get_device_module(torch.accelerator.current_accelerator())
