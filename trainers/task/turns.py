"""The losses of a task whose optimizers take turns, such as a GAN's, and their sum for the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.task import Loss, Task


def whole_loss(task: Task, model: nn.Module, batch: Any) -> Loss:
    """The loss of a batch; if optimizers take turns, the sum of their losses with each as a metric."""
    if not task.turns:
        return task.loss(model, batch)
    losses = {}
    for turn in dict.fromkeys(task.turns):
        with taking(task, turn):
            losses[turn] = task.loss(model, batch)
    return joined(task, losses)


@contextmanager
def taking(task: Task, turn: str) -> Iterator[None]:
    """A context in which it is this optimizer's turn, for `task.state.turn`."""
    before, task.state.turn = task.state.turn, turn
    try:
        yield
    finally:
        task.state.turn = before


def joined(task: Task, losses: Mapping[str, Loss]) -> Loss:
    """The sum of the turns' losses of one batch, with each as a metric.

    Raises:
        ConfigError: they have different numbers of items, or metrics of the same name.
    """
    kind = f"{type(task).__qualname__}.loss"
    counts = {turn: loss.count for turn, loss in losses.items()}
    if len({count for count in counts.values() if not isinstance(count, Tensor)}) > 1:
        found = ", ".join(f"{count} for {turn}" for turn, count in counts.items())
        raise ConfigError([f"{kind} returned different counts in the turns of a batch ({found}); return one"])
    totals = {turn: loss.total for turn, loss in losses.items()}
    metrics: dict[str, Tensor | float] = dict(totals)
    for turn, loss in losses.items():
        twice = [name for name in loss.metrics if name in metrics]
        if twice:
            raise ConfigError(
                [f"{kind} returned the metric {twice[0]!r} for {turn}, which is taken; use another name"]
            )
        metrics |= loss.metrics
    first, *others = totals.values()
    return Loss(sum(others, first), next(iter(counts.values())), metrics)


class Losses:
    """Passes the loss of each micro-batch on; if optimizers take turns, once all have had their turn."""

    def __init__(self, task: Task, report: Callable[[Loss, int], None]):
        self._task = task
        self._report = report
        self._left = len(task.turns)
        self._round: list[tuple[Loss, int]] = []
        self._rounds: dict[str, Sequence[tuple[Loss, int]]] = {}

    def add(self, loss: Loss, samples: int, *, last: bool) -> None:
        """Add the loss of a micro-batch of `samples` samples; `last`: it is the step's or the turn's last."""
        turn = self._task.state.turn
        if turn is None:
            self._report(loss, samples)
            return
        self._round.append((Loss(loss.total.detach(), loss.count, loss.metrics), samples))
        if not last:
            return
        self._rounds[turn], self._round = self._round, []
        self._left -= 1
        if not self._left:
            for number, (_, samples) in enumerate(self._rounds[turn]):
                of_micro = {name: losses[number][0] for name, losses in self._rounds.items()}
                self._report(joined(self._task, of_micro), samples)
            self._left = len(self._task.turns)
