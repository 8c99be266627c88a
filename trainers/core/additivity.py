"""Whether a loss is a sum, as it should be, or a mean: the same samples twice double a sum and leave a mean.

Only what is unmistakable is told. A loss that draws random numbers is computed several times, and one that is
neither, as where samples are compared with each other, is nobody's business.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainers.core.distributed import Place
from trainers.core.engine import Engine
from trainers.core.evaluation import evaluating
from trainers.core.fields import ConfigError, few
from trainers.core.loading import Pair
from trainers.core.randomness import TASK, derived, undisturbed
from trainers.core.state import TrainingState
from trainers.task import Loss, Task, move

logger = logging.getLogger(__name__)

_DRAWS = 3
"""How often a loss that looks like a mean is computed, with other random numbers."""

_ROUNDING = 1e-2
_NOISE = 0.1
"""By which part numbers may differ that should be the same: without random numbers, and with some."""

"""Ranks in a message."""

_TOTAL = "total"


class Additivity:
    """Looks at a task's loss of a few samples, and leaves everything as it was."""

    def __init__(self, task: Task, engine: Engine, state: TrainingState, place: Place):
        self._task = task
        self._engine = engine
        self._state = state
        self._place = place

    def check(self, pair: Pair | None) -> None:
        """See that the loss is a sum; all ranks must call it.

        Raises:
            ConfigError: on all ranks its total is a mean.
        """
        if not self._everywhere(pair is not None):
            return
        assert pair is not None
        with undisturbed(), _kept(self._engine.bare):
            drawn = [self._figures(pair, 0)]
            # All ranks compute as often: a loss may wait for other ranks.
            if self._anywhere(bool(_means(drawn))):
                drawn += [self._figures(pair, number) for number in range(1, _DRAWS)]
        means = _means(drawn)
        if self._everywhere(_TOTAL in means):
            raise ConfigError([self._words(drawn[0], pair.samples, means)])
        if self._place.is_main and means and _TOTAL not in means:
            logger.warning(
                "%s.loss gives a mean for %s where Loss.metrics takes sums over the batch's items, so it is "
                "divided once more; give a sum, as (guess == label).sum()",
                *(type(self._task).__qualname__, few(sorted(means))),
            )

    def _figures(self, pair: Pair, number: int) -> _Figures | None:
        """Of both batches: the count, the total, and the metrics; None: it cannot be computed so."""
        seed = derived(TASK, self._state.seed, self._place.rank, number)
        try:
            once, twice = (self._loss(batch, seed) for batch in (pair.once, pair.twice))
            found = {name: (once[name], twice[name]) for name in once if name in twice}
        except Exception as error:  # noqa: BLE001  # in eval mode, or with fewer samples, it may take none
            logger.debug("the loss of a few samples cannot be looked at: %r", error)
            return None
        return found

    def _loss(self, batch: Any, seed: int) -> dict[str, float | None]:
        self._state.draw_from(seed)
        batch = move(copy.deepcopy(batch), self._place.device)
        # A copy of the task, so that what it counts in itself is not counted twice.
        with evaluating(self._engine.bare) as model, self._engine.autocast():
            loss = copy.copy(self._task).loss(model, batch)
        return _numbers(loss)

    def _words(self, found: _Figures | None, samples: int, means: Sequence[str]) -> str:
        once, twice = (found or {}).get(_TOTAL, (None, None))
        # Rank 0's, on every rank: so all have the same error, and one of them says it.
        first = self._place.gather(torch.tensor([once or 0.0, twice or 0.0], dtype=torch.float64))[0]
        metrics = few(sorted(name for name in means if name != _TOTAL))
        beside = f" and for the metrics {metrics}" if metrics else ""
        return (
            f"{type(self._task).__qualname__}.loss gives a mean for total{beside} where a sum is due: sum it "
            "(reduction='sum'), or give Loss(mean * samples); of a mean over other items, as tokens, "
            f"Loss(mean * tokens, tokens). Of {samples} samples the total is {first[0]:.6g}, and of the same "
            f"twice {first[1]:.6g}, on rank 0. If the loss is right as it is, "
            "training.check_first_step: false leaves this out"
        )

    def _everywhere(self, mine: bool) -> bool:
        return self._sum(mine) == self._place.world_size

    def _anywhere(self, mine: bool) -> bool:
        return self._sum(mine) > 0

    def _sum(self, mine: bool) -> int:
        return int(self._place.sum(torch.tensor(int(mine))))


_Figures = dict[str, tuple[float | None, float | None]]


def _numbers(loss: Loss) -> dict[str, float | None]:
    found = {name: _number(value) for name, value in loss.metrics.items()}
    count = None if loss.count is None else _number(loss.count)
    return {**found, _TOTAL: _number(loss.total), _COUNT: count}


_COUNT = "count, of no metric"


def _number(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else float(value)


def _means(drawn: Sequence[_Figures | None]) -> list[str]:
    """The names of what stays as it is where samples come twice, and should not."""
    figures = [each for each in drawn if each is not None]
    if len(figures) < len(drawn):
        return []
    names = [name for name in figures[0] if name != _COUNT and all(name in each for each in figures)]
    return [name for name in names if _counted(figures) and _stays([each[name] for each in figures])]


def _counted(figures: Sequence[_Figures]) -> bool:
    """Whether the count grows with the samples; a loss of one item a batch may be a mean."""
    once, twice = figures[0][_COUNT]
    return once is None or twice is None or (once > 0 and math.isclose(twice, 2 * once, rel_tol=1e-3))


def _stays(values: Sequence[tuple[float | None, float | None]]) -> bool:
    ones, twos = ([each for each in side if each is not None] for side in zip(*values, strict=True))
    middle = sum(ones) / len(ones)
    if not all(map(math.isfinite, [*ones, *twos])) or abs(middle) < 1e-12:
        return False
    spread = max(abs(each / middle - 1) for each in ones)
    several = len(values) > 1  # of one alone nobody knows whether it is drawn
    allowed = _ROUNDING if several and spread <= _ROUNDING else _NOISE
    return spread <= _NOISE and all(abs(two / middle - 1) <= allowed for two in twos)


@contextmanager
def _kept(model: nn.Module) -> Iterator[None]:
    """Afterwards its weights and buffers hold what they held, and its parts have their attributes again."""
    tensors = [*model.parameters(), *model.buffers()]
    held = [(each, each._version, each.detach().clone()) for each in tensors]
    attributes = [(module, dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for module, before in attributes:
            vars(module).clear()
            vars(module).update(before)
        with torch.no_grad():
            for each, version, copied in held:
                if each._version != version:
                    each.copy_(copied)
