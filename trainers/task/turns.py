"""The losses of a task whose optimizers take turns, such as a GAN's, and their sum for the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from castoff.trainers.task import Loss, Task, joined


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
        turn = self._task.state.turn if self._task.turns else None
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
