"""Training metrics: kept on the device until needed, then summed exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext

_AT_MOST = 10_000
"""The most micro-batches whose losses and metrics stay on the device before they are copied to the host."""
_SMALL = 1024
"""Bytes; a number in a larger storage is copied, or it would keep the storage alive."""


class Running:
    """Sums of the loss and its metrics over micro-batches, on this rank.

    Only `report`, `end_epoch` and `state_dict` wait for the device. Sums are added in float64 and in the
    order of the micro-batches, so that a resumed run gets the same bits wherever its checkpoint was made.
    """

    def __init__(self) -> None:
        self.names: list[str] | None = None
        """Names of the metrics; None before the first micro-batch."""
        self.interval: list[float] = []
        """Sums since the last report: number of items, loss, then the metrics."""
        self.epoch: list[float] = []
        """The same sums since the epoch began, without the current interval."""
        self._waiting: list[list[Tensor | float]] = []
        self._latest: dict[str, Tensor | float] = {}
        self._brought = 0.0

    def add(
        self,
        total: Tensor,
        count: int | Tensor,
        metrics: Mapping[str, Tensor | float] | None = None,
    ) -> None:
        """Add a micro-batch's sums of the loss and the metrics, and its number of items.

        Raises:
            ConfigError: the task returns other metrics than before.
        """
        metrics = metrics or {}
        if self.names is None:
            self.names = list(metrics)
        elif self.names != list(metrics):
            raise ConfigError(
                [
                    f"task: its loss has the metrics {list(metrics)}, and had {self.names} before; "
                    "return the same metrics in the same order for every batch"
                ]
            )
        self._waiting.append([_held(value) for value in (count, total, *metrics.values())])
        if len(self._waiting) >= _AT_MOST:
            self.settle()

    def keep(self, name: str, value: Tensor | float) -> None:
        """Keep a number that is equal on all ranks, such as the gradient's norm; the latest is reported."""
        self._latest[name] = _held(value)

    def settle(self) -> None:
        """Read the numbers kept on the device, in one transfer, and add them to the interval's sums."""
        *rows, kept = _numbers([*self._waiting, list(self._latest.values())])
        for values in rows:
            self.interval = _added(self.interval, values)
        self._waiting.clear()
        self._latest = dict(zip(self._latest, kept, strict=True))

    @property
    def items(self) -> float:
        """Number of the interval's items in this process, without those from a checkpoint."""
        return (self.interval[0] if self.interval else 0.0) - self._brought

    @property
    def loss(self) -> float:
        """This rank's mean loss over the interval, after `settle()`; NaN without items."""
        return self.interval[1] / self.interval[0] if self.interval and self.interval[0] else float("nan")

    @property
    def kept(self) -> dict[str, float]:
        """The latest numbers passed to `keep`, after `settle()`."""
        return {name: float(value) for name, value in self._latest.items()}

    def report(
        self, context: RankContext, beside: Sequence[float] = ()
    ) -> tuple[dict[str, float], list[float]]:
        """The interval's means over all ranks, and the sums of `beside`; begins a new interval.

        `beside` is summed over ranks in the same message; it has the same length on all ranks.
        """
        self.settle()
        total = self._over_ranks(self.interval, context, beside)
        self.epoch = _added(self.epoch, self.interval)
        self.interval, self._brought = [], 0.0
        width = self._width()
        return self._means(total[:width]), total[width:]

    def end_epoch(self, context: RankContext) -> dict[str, float]:
        """The epoch's means over all ranks; begins a new epoch. The interval continues."""
        self.settle()
        means = self._means(self._over_ranks(_added(self.epoch, self.interval), context))
        self.epoch = [
            -value for value in self.interval
        ]  # the next report will add it, but it is not the new epoch's
        return means

    def state_dict(self) -> dict[str, Any]:
        """This rank's sums, for a checkpoint."""
        self.settle()
        return {"names": self.names, "interval": self.interval, "epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.names, self.interval, self.epoch = state["names"], state["interval"], state["epoch"]
        self._brought = self.interval[0] if self.interval else 0.0
        self._waiting.clear()

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]], context: RankContext) -> None:
        """Resume from the sums that a different number of ranks saved; rank 0 takes all of them."""
        mine: dict[str, Any] = {"names": states[0]["names"], "interval": [], "epoch": []}
        if context.is_main:
            for name in ("interval", "epoch"):
                for state in states:
                    mine[name] = _added(mine[name], state[name])
        self.load_state_dict(mine)

    def _width(self) -> int:
        return 2 + len(self.names or [])

    def _padded(self, values: list[float]) -> list[float]:
        return values or [0.0] * self._width()

    def _over_ranks(
        self, sums: list[float], context: RankContext, beside: Sequence[float] = ()
    ) -> list[float]:
        packed = torch.tensor([*self._padded(sums), *beside], dtype=torch.float64)
        total: list[float] = context.sum(packed).tolist()
        return total

    def _means(self, total: list[float]) -> dict[str, float]:
        count = total[0]
        return {
            name: value / count if count else float("nan")
            for name, value in zip(["loss", *(self.names or [])], total[1:], strict=True)
        }


def _held(value: Tensor | float) -> Tensor | float:
    if not isinstance(value, Tensor):
        return float(value)
    value = value.detach()
    return value.clone() if value.untyped_storage().nbytes() > _SMALL else value


def _added(left: list[float], right: Sequence[float]) -> list[float]:
    if not left or not right:
        return list(left or right)
    return [a + b for a, b in zip(left, right, strict=True)]


def _numbers(rows: Sequence[Sequence[Tensor | float]]) -> list[list[float]]:
    """The rows as floats, read from the device in one transfer."""
    tensors = [_scalar(value) for row in rows for value in row if isinstance(value, Tensor)]
    numbers = iter(_read(tensors))
    return [[next(numbers) if isinstance(value, Tensor) else value for value in row] for row in rows]


def _scalar(value: Tensor) -> Tensor:
    return value if value.dtype == torch.float32 and value.dim() == 0 else value.reshape(()).float()


def _read(tensors: list[Tensor]) -> list[float]:
    if len({each.device for each in tensors}) > 1:  # a metric that the task made on the CPU
        return [tensor.item() for tensor in tensors]
    numbers: list[float] = torch.stack(tensors).tolist() if tensors else []
    return numbers
