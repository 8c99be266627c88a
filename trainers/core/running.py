"""Training measures as they come: kept on the device until somebody asks, then summed exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainers.core.distributed import Place

_AT_MOST = 10_000
"""Micro-batches whose numbers wait on the device: in a longer interval it is waited for once in so many."""
_SMALL = 1024
"""Bytes; a number that lies in a larger tensor would keep that alive."""


class Running:
    """Sums of the loss and its metrics over micro-batches, on this rank.

    Nothing waits for the device before `report`, `end_epoch` and `state`. The additions happen in
    float64 and in the order of the micro-batches, so that a run that goes on from a checkpoint gets
    the same bits wherever that was made.
    """

    def __init__(self) -> None:
        self.names: list[str] | None = None
        """Of the metrics; known after the first micro-batch."""
        self.interval: list[float] = []
        """Since the last report: the count, the loss's sum, then the metrics'."""
        self.epoch: list[float] = []
        """The same since the epoch began, without the interval."""
        self._waiting: list[list[Tensor | float]] = []
        self._latest: dict[str, Tensor | float] = {}
        self._brought = 0.0

    def add(
        self,
        total: Tensor,
        count: int | Tensor,
        metrics: Mapping[str, Tensor | float] | None = None,
    ) -> None:
        """Take in a micro-batch's sums: of the loss, of its items, and of the metrics over them.

        Raises:
            ValueError: the task names other metrics than before.
        """
        metrics = metrics or {}
        if self.names is None:
            self.names = list(metrics)
        elif self.names != list(metrics):
            raise ValueError(
                f"the task's loss has the metrics {list(metrics)}, and had {self.names} before; "
                "give the same ones in the same order for every batch"
            )
        self._waiting.append([_held(value) for value in (count, total, *metrics.values())])
        if len(self._waiting) >= _AT_MOST:
            self.settle()

    def keep(self, name: str, value: Tensor | float) -> None:
        """A number that is the same on all ranks, as the gradient's norm: the latest is reported."""
        self._latest[name] = _held(value)

    def settle(self) -> None:
        """Read what waits on the device, in one transfer, and add it to the interval's sums."""
        *rows, kept = _numbers([*self._waiting, list(self._latest.values())])
        for values in rows:
            self.interval = _added(self.interval, values)
        self._waiting.clear()
        self._latest = dict(zip(self._latest, kept, strict=True))

    @property
    def items(self) -> float:
        """How many of the interval's items this process has seen: not those that a checkpoint brought."""
        return (self.interval[0] if self.interval else 0.0) - self._brought

    def report(self, place: Place, beside: Sequence[float] = ()) -> tuple[dict[str, float], list[float]]:
        """The interval's means over all ranks and the latest of what is kept; begins a new one.

        `beside` is summed over ranks in the same message; all ranks give as many.
        """
        self.settle()
        total = self._over_ranks(self.interval, place, beside)
        self.epoch = _added(self.epoch, self.interval)
        self.interval, self._brought = [], 0.0
        width = self._width()
        return self._means(total[:width]) | self._kept(), total[width:]

    def end_epoch(self, place: Place) -> dict[str, float]:
        """The epoch's means over all ranks; begins a new one. The interval goes on."""
        self.settle()
        means = self._means(self._over_ranks(_added(self.epoch, self.interval), place))
        self.epoch = [-value for value in self.interval]  # what the next report adds is not its
        return means

    def state(self, place: Place) -> dict[str, Tensor | list[str] | None]:
        """Every rank's sums, for a checkpoint. All ranks must call it."""
        self.settle()
        mine = [*self._padded(self.interval), *self._padded(self.epoch)]
        return {"names": self.names, "sums": place.gather(torch.tensor(mine, dtype=torch.float64))}

    def load(self, state: Mapping[str, Tensor | list[str] | None], place: Place) -> None:
        """Go on from a checkpoint; with another world size, rank 0 takes all of it."""
        names, sums = state["names"], state["sums"]
        assert isinstance(sums, Tensor)
        self.names = None if names is None else [str(name) for name in names]
        if sums.shape[0] == place.world_size:
            mine = sums[place.rank]
        else:
            mine = sums.sum(0) if place.is_main else torch.zeros_like(sums[0])
        width = 0 if self.names is None else self._width()
        values = mine.tolist()
        self.interval, self.epoch = values[:width], values[width : 2 * width]
        self._brought = values[0]
        self._waiting.clear()

    def _kept(self) -> dict[str, float]:
        return {name: float(value) for name, value in self._latest.items()}

    def _width(self) -> int:
        return 2 + len(self.names or [])

    def _padded(self, values: list[float]) -> list[float]:
        return values or [0.0] * self._width()

    def _over_ranks(self, sums: list[float], place: Place, beside: Sequence[float] = ()) -> list[float]:
        packed = torch.tensor([*self._padded(sums), *beside], dtype=torch.float64)
        total: list[float] = place.sum(packed).tolist()
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
    """Rows of numbers, with one transfer from the device for all of them."""
    tensors = [value.reshape(()).float() for row in rows for value in row if isinstance(value, Tensor)]
    known = iter(_read(tensors))
    return [[next(known) if isinstance(value, Tensor) else value for value in row] for row in rows]


def _read(tensors: list[Tensor]) -> list[float]:
    if len({each.device for each in tensors}) > 1:  # a metric that the task made on the CPU
        return [each.item() for each in tensors]
    found: list[float] = torch.stack(tensors).tolist() if tensors else []
    return found
