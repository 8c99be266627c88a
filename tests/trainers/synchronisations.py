"""Counts what would wait for an accelerator, on a machine that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_READS = ("tolist", "numpy", "__array__", "__repr__", "cpu")
"""Methods that read a tensor without an operator that says so, where the tensor lies on the CPU."""
_ATEN = torch.ops.aten
_WAITING = {
    _ATEN._local_scalar_dense.default,
    _ATEN.equal.default,
    _ATEN.masked_select.default,
    _ATEN.nonzero.default,
}
"""Operators whose result, or whose result's shape, the host must know."""


@dataclass
class Synchronisations:
    """What was read, in its order."""

    found: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.found)


class _Watch(TorchDispatchMode):
    def __init__(self, found: list[str]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _WAITING or (func is _ATEN.index.Tensor and _by_mask(args[1])):
            self._found.append(str(func))
        return func(*args, **(kwargs or {}))


def _by_mask(indices: list[Tensor | None]) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)


@contextmanager
def counted() -> Iterator[Synchronisations]:
    """Every value that is read from a tensor meanwhile: item, tolist, bool, float, numpy, print."""
    seen = Synchronisations()
    patches = [patch.object(Tensor, name, _telling(name, seen.found)) for name in _READS]
    with _Watch(seen.found):
        for each in patches:
            each.start()
        try:
            yield seen
        finally:
            for each in patches:
                each.stop()


def _telling(name: str, found: list[str]) -> Callable[..., Any]:
    read = getattr(Tensor, name)

    def uncertain(self: Tensor, *arguments: Any, **named: Any) -> Any:
        found.append(name)
        return read(self, *arguments, **named)

    return uncertain
