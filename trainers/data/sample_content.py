"""A sample's content as a few numbers that ranks can compare.

Exact values go into a digest: structure, shapes, whole numbers, text. Floating-point numbers become two sums,
which may differ by rounding, since different CPUs compute them with different instructions. Of an object that
cannot be compared, such as one without attributes, only the class counts.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import torch
from torch import Tensor

_ROUNDING = 1e-3
"""Relative difference up to which two sums count as equal, as a fraction of the sum of absolute values."""

_DEEPEST = 8
_MOST = 4096
"""The most levels and items that are read; samples rarely have more."""


class Content(NamedTuple):
    """The content of one sample."""

    exact: str
    """Digest of everything but floating-point numbers."""
    size: float
    """Sum of the absolute values of the sample's floating-point numbers."""
    weighted: float
    """Sum of the floating-point numbers, each times a factor between -1 and 1 that depends on its
    position.
    """

    def same(self, other: Content) -> bool:
        """Whether this content and another one can come from the same sample."""
        scale = _ROUNDING * max(self.size, other.size)
        near = abs(self.size - other.size) <= scale and abs(self.weighted - other.weighted) <= scale
        return self.exact == other.exact and near

    def __str__(self) -> str:
        numbers = f"numbers that sum to {self.weighted:.6g}, weighted, and " if self.size else ""
        return f"{numbers}the digest {self.exact[:8]}"


def content(sample: Any) -> Content:
    """Read a sample: its tensors, arrays, containers, dataclasses, graphs, images, numbers and text."""
    reading = _Reading()
    reading.take(sample, 0)
    return Content(reading.exact.hexdigest(), reading.size, reading.weighted)


class _Reading:
    def __init__(self) -> None:
        self.exact = hashlib.sha256()
        self.size = 0.0
        self.weighted = 0.0
        self._items = 0

    def take(self, value: Any, depth: int) -> None:
        """Add a value, and everything that it contains."""
        self._items += 1
        if depth > _DEEPEST or self._items > _MOST:
            return
        self._report(type(value).__qualname__)
        if isinstance(value, Tensor):
            self._tensor(value)
        elif isinstance(value, bool | int | bytes | complex | type(None)):
            self._report(repr(value))
        elif isinstance(value, float):
            self._numbers(torch.tensor([value], dtype=torch.float64))
        elif isinstance(value, str | PurePath):
            self._report(_text(str(value)))
        elif isinstance(value, set | frozenset):
            self._report(",".join(sorted(content(each).exact for each in value)))
        elif isinstance(value, Mapping):
            self._named(value.items(), depth)
        elif isinstance(value, list | tuple):
            for each in value:
                self.take(each, depth + 1)
        elif is_dataclass(value) and not isinstance(value, type):
            self._named(((field.name, getattr(value, field.name, None)) for field in fields(value)), depth)
        else:
            self._other(value, depth)

    def _other(self, value: Any, depth: int) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            if value.dtype.kind in "biufc":
                self._tensor(torch.from_numpy(numpy.array(value)))
            elif value.dtype.kind in "SU":
                self._report(repr(value.tolist()))
        elif callable(getattr(value, "to_dict", None)) and hasattr(value, "keys"):  # torch_geometric's Data
            self._named(value.to_dict().items(), depth)
        elif hasattr(value, "tobytes") and hasattr(value, "size") and hasattr(value, "mode"):  # an image
            self._report(f"{value.size} {value.mode}")
            self.exact.update(value.tobytes())
        else:
            self._named(getattr(value, "__dict__", {}).items(), depth)

    def _named(self, items: Iterable[tuple[Any, Any]], depth: int) -> None:
        for name, each in items:
            self._report(_text(str(name)))
            self.take(each, depth + 1)

    def _tensor(self, value: Tensor) -> None:
        value = value.detach()
        if value.is_nested or value.layout is not torch.strided or value.is_quantized:
            return
        self._report(f"{tuple(value.shape)} {value.dtype}")
        value = value.cpu().reshape(-1)
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj()).reshape(-1)
        if value.is_floating_point():
            self._numbers(value.double())
        else:
            self.exact.update(value.numpy().tobytes())

    def _numbers(self, values: Tensor) -> None:
        non_finite = ~values.isfinite()
        self.exact.update(non_finite.numpy().tobytes() if bool(non_finite.any()) else b"")
        values = torch.where(non_finite, 0.0, values)
        positions = torch.arange(1, len(values) + 1, dtype=torch.float64) + self._items
        self.size = _finite(self.size + float(values.abs().sum()))
        self.weighted = _finite(self.weighted + float((values * positions.cos()).sum()))

    def _report(self, text: str) -> None:
        self.exact.update(text.encode(errors="replace") + b"\0")


def _text(text: str) -> str:
    """The text; of an absolute path only the last part, since its folder may differ between hosts."""
    return Path(text).name if text.startswith("/") and "\n" not in text else text


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0
