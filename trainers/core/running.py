"""Training measures as they come: kept on the device until somebody asks, then summed exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainers.core.distributed import Place
from trainers.task import Loss


class Running:
    """Sums of the loss and its metrics over steps, on this rank.

    Nothing waits for the device before `settle`, and the additions happen in the order of the
    steps, so that a run that goes on from a checkpoint gets the same bits.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        """Of the metrics; known after the first step."""
        self.interval: list[float] = []
        """Since the last report: the count, the loss's sum, then the metrics'."""
        self.epoch: list[float] = []
        """The same since the epoch began, without the interval."""
        self._waiting: list[list[Tensor | float]] = []

    def add(self, loss: Loss, real: bool) -> None:
        """Take in a step's loss; one whose samples do not count only tells the names."""
        if not self.names and loss.metrics:
            self.names = list(loss.metrics)
        weight = 1.0 if real else 0.0
        values: list[Tensor | float] = [weight * (loss.count or 0)]
        for value in (loss.total, *loss.metrics.values()):
            held = value.detach() if isinstance(value, Tensor) else value
            values.append(held if real else 0.0)
        self._waiting.append(values)

    def settle(self) -> None:
        """Add what is waiting to the interval's sums."""
        for values in _numbers(self._waiting):
            self.interval = _added(self.interval, values)
        self._waiting.clear()

    def report(self, place: Place) -> dict[str, float]:
        """The interval's means over all ranks; begins a new one."""
        self.settle()
        means = self._means(self.interval, place)
        self.epoch = _added(self.epoch, self.interval)
        self.interval = []
        return means

    def end_epoch(self, place: Place) -> dict[str, float]:
        """The epoch's means over all ranks; begins a new one. The interval goes on."""
        self.settle()
        means = self._means(_added(self.epoch, self.interval), place)
        self.epoch = [-value for value in self.interval]  # what the next report adds is not its
        return means

    def state(self, place: Place) -> dict[str, Tensor | list[str]]:
        """Every rank's sums, for a checkpoint. All ranks must call it."""
        self.settle()
        width = 2 + len(self.names)
        mine = [*_padded(self.interval, width), *_padded(self.epoch, width)]
        return {"names": self.names, "sums": place.gather(torch.tensor(mine, dtype=torch.float64))}

    def load(self, state: dict[str, Tensor | list[str]], place: Place) -> None:
        """Go on from a checkpoint; with another world size, rank 0 takes all of it."""
        names, sums = state["names"], state["sums"]
        assert isinstance(sums, Tensor)
        self.names = [str(name) for name in names]
        if sums.shape[0] == place.world_size:
            mine = sums[place.rank]
        else:
            mine = sums.sum(0) if place.is_main else torch.zeros_like(sums[0])
        values = mine.tolist()
        half = len(values) // 2
        self.interval, self.epoch = values[:half], values[half:]

    def _means(self, sums: list[float], place: Place) -> dict[str, float]:
        total = place.sum(torch.tensor(_padded(sums, 2 + len(self.names)), dtype=torch.float64)).tolist()
        count = total[0]
        return {
            name: value / count if count else float("nan")
            for name, value in zip(["loss", *self.names], total[1:], strict=True)
        }


def _added(left: list[float], right: Sequence[float]) -> list[float]:
    if not left or not right:
        return list(left or right)
    return [a + b for a, b in zip(left, right, strict=True)]


def _padded(values: list[float], width: int) -> list[float]:
    return values or [0.0] * width


def _numbers(rows: list[list[Tensor | float]]) -> list[list[float]]:
    """Rows of numbers, with one transfer from the device for all of them."""
    tensors = [value.reshape(()).float() for row in rows for value in row if isinstance(value, Tensor)]
    known = iter(torch.stack(tensors).tolist() if tensors else [])
    return [[next(known) if isinstance(value, Tensor) else float(value) for value in row] for row in rows]
