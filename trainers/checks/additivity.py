"""Checks that a loss is a sum, not a mean: the same samples twice double a sum, but do not change a mean.

The sums of `evaluate` are checked, too. Only clear cases are reported. A loss that draws random numbers is
computed several times. A loss that is neither, for example one that compares samples with each other, is
accepted. But a sum over all pairs of samples causes a warning, since outputs (4, 1) minus labels (4,) are (4,
4).
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from castoff.trainers.checks.common_numbers import CommonNumbers
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.data.batches import Pair
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import TASK, derived
from castoff.trainers.evaluation.metrics import evaluating, totals
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.task import Evaluated, Sum, Task, move, whole_loss
from castoff.trainers.task.training_state import TrainingState
from castoff.trainers.task.untouched import untouched

logger = logging.getLogger(__name__)

_DRAWS = 3
"""How often a sum that looks like a mean is computed, each time with other random numbers."""

_ROUNDING = 1e-2
_NOISE = 0.1
_SEEN = 2e-4
"""Relative differences: the largest between equal numbers without random numbers (`_ROUNDING`) and with them
(`_NOISE`), and the smallest that is not rounding in single precision (`_SEEN`)."""


class _Figure(NamedTuple):
    """A sum over a few samples, and the same sum over these samples twice."""

    total: float
    items: float | None


_OVER_PAIRS = (
    "%s of the same %d samples twice is four times as large, not twice: it is a sum over all pairs of "
    "samples, as happens if outputs have the shape (N, 1) and labels the shape (N,): give both the same "
    "shape, for example with squeeze(1)"
)

_PER_BATCH = (
    "Most of %s's total does not grow with the samples: a part of it belongs to the whole batch, such "
    "as a KL divergence of the weights or a penalty. The total is divided by the number of samples, so "
    "this part counts less with larger batches and with more ranks. Multiply it by the number of "
    "samples in the batch; if it should count once per epoch, divide it by the number of samples in the "
    "training set"
)

_Figures: TypeAlias = "dict[str, tuple[_Figure, _Figure]]"
"""By name, a sum over the samples and the sum over the same samples twice."""

_Sums: TypeAlias = "Callable[[Task, nn.Module, Any, int], Mapping[str, Sum]]"
"""Computes a task's sums for a batch with this number of samples."""


class Kind(NamedTuple):
    """A method of a task that returns sums, and the messages about it."""

    method: str
    sums: _Sums
    main: str
    """The name that must be a sum: a mean is an error here, and only a warning under other names."""
    others: str
    mend: str
    a_sum: str
    no_grad: bool


def _of_loss(task: Task, model: nn.Module, batch: Any, _: int) -> dict[str, Sum]:
    loss = whole_loss(task, model, batch)
    return {
        "total": (loss.total, loss.count),
        **{name: (value, loss.count) for name, value in loss.metrics.items()},
    }


def _of_evaluation(task: Task, model: nn.Module, batch: Any, samples: int) -> dict[str, Sum]:
    """Each metric times the number of samples, because only the task's `finish` knows the metric's
    divisor.
    """
    result = task.evaluate(model, batch)
    sums = totals(result.sums if isinstance(result, Evaluated) else result, samples)
    return {name: (value * samples, None) for name, value in task.finish(sums).items()}


LOSS = Kind(
    "loss",
    _of_loss,
    "total",
    "metrics",
    "sum it (reduction='sum'), or return Loss(mean * samples); for a mean over other items, such as "
    "tokens, Loss(mean * tokens, tokens)",
    "a sum, such as (guess == label).sum()",
    no_grad=False,
)
EVALUATE = Kind(
    "evaluate",
    _of_evaluation,
    "loss",
    "metrics",
    'return {"loss": (sum, None)}; for a mean, (mean * samples, None), and for a mean over other items, '
    "such as tokens, (mean * tokens, tokens)",
    "a sum and its number of items, such as ((guess == label).sum(), len(label))",
    no_grad=True,
)


class Additivity:
    """Checks a task's sums on a few samples, and restores all state afterwards."""

    def __init__(self, engine: Engine, state: TrainingState, context: RankContext):
        self._engine = engine
        self._state = state
        self._context = context

    def check(self, kind: Kind, task: Task, pair: Pair | None) -> None:
        """Check that a method of the task returns sums; all ranks must call it.

        Raises:
            ConfigError: on all ranks it returns a mean as the loss.
        """
        with self._engine.gathered():
            whole = kind.no_grad or self._engine.strategy.sharded
            model = self._engine.judged if whole else self._engine.bare
            drawn, means = self._looked_at(task, model, pair, kind)
        others = few(sorted(name for name in means if name != kind.main))
        where = f"{type(task).__qualname__}.{kind.method} returns a mean for"
        single = self._state.precision == "fp32"
        if self._context.everywhere(kind is LOSS and kind.main in means and single and _constant_part(drawn)):
            means = [name for name in means if name != kind.main]
            if self._context.is_main:
                logger.warning(_PER_BATCH, f"{type(task).__qualname__}.{kind.method}")
        if self._context.everywhere(kind.main in means):
            beside = f" and for the {kind.others} {others}" if others else ""
            raise self._reported(f"{where} {kind.main}{beside}", kind, pair, drawn)
        if self._context.is_main and others and kind.main not in means:
            logger.warning(
                "%s %s instead of a sum over the batch's items, so it is divided twice; return %s",
                where,
                others,
                kind.a_sum,
            )
        if self._context.is_main and kind is LOSS and _is_over_pairs(drawn):
            assert pair is not None
            logger.warning(_OVER_PAIRS, f"{type(task).__qualname__}.{kind.method}", pair.samples)

    def _looked_at(
        self, task: Task, model: nn.Module, pair: Pair | None, kind: Kind
    ) -> tuple[list[_Figures | None], list[str]]:
        """The sums of each draw, and the names of those that are means; both empty if a rank has no
        samples.
        """
        if not self._context.everywhere(pair is not None):
            return [], []
        assert pair is not None
        with untouched(model, task), torch.set_grad_enabled(not kind.no_grad):
            drawn = [self._figures(task, model, pair, kind.sums, 0)]
            # All ranks compute equally often, since a loss may wait for other ranks.
            if self._context.anywhere(bool(_means(drawn))):
                drawn += [self._figures(task, model, pair, kind.sums, number) for number in range(1, _DRAWS)]
        return drawn, _means(drawn)

    def _figures(self, task: Task, model: nn.Module, pair: Pair, sums: _Sums, number: int) -> _Figures | None:
        """The sums with the `number`-th random seed; None: the task cannot compute them."""
        seed = derived(TASK, self._state.seed, self._context.rank, number)
        try:
            common = CommonNumbers()
            with common.once():
                once = self._of(task, model, pair.once, pair.samples, sums, seed)
            with common.twice():
                twice = self._of(task, model, pair.twice, 2 * pair.samples, sums, seed)
        except Exception as error:  # noqa: BLE001  # the task may fail in eval mode or with few samples
            logger.debug("the sums over a few samples cannot be checked: %r", error)
            return None
        return {name: (once[name], twice[name]) for name in once if name in twice}

    def _of(
        self, task: Task, model: nn.Module, batch: Any, samples: int, sums: _Sums, seed: int
    ) -> dict[str, _Figure]:
        self._state.draw_from(seed)
        batch = move(copy.deepcopy(batch), self._context.device)
        with evaluating(model), self._engine.autocast():
            results = sums(task, model, batch, samples)
        return {
            name: _Figure(_number(value), None if count is None else _number(count))
            for name, (value, count) in results.items()
        }

    def _reported(
        self, what: str, kind: Kind, pair: Pair | None, drawn: Sequence[_Figures | None]
    ) -> ConfigError:
        assert pair is not None
        assert drawn[0] is not None
        once, twice = (figure.total for figure in drawn[0][kind.main])
        # Rank 0's numbers on every rank, so that all have the same error and only one reports it.
        first = self._context.gather(torch.tensor([once, twice], dtype=torch.float64))[0]
        return ConfigError(
            [
                f"{what} instead of a sum: {kind.mend}. For {pair.samples} samples the {kind.main} is "
                f"{first[0]:.6g}, and for the same samples twice {first[1]:.6g}, on rank 0. If this is "
                "intended, training.check_first_step: false skips this check"
            ]
        )


def _number(value: Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, Tensor) else float(value)


def _means(drawn: Sequence[_Figures | None]) -> list[str]:
    """The names of sums that do not grow when the samples come twice, in every draw."""
    figures = [each for each in drawn if each is not None]
    if len(figures) < len(drawn):
        return []
    names = [name for name in figures[0] if all(name in figure for figure in figures)]
    return [name for name in names if _is_mean([each[name] for each in figures])]


def _is_mean(drawn: Sequence[tuple[_Figure, _Figure]]) -> bool:
    return _counted(*drawn[0]) and _stays([(once.total, twice.total) for once, twice in drawn])


def _is_over_pairs(drawn: Sequence[_Figures | None]) -> bool:
    """Whether the loss is four times as large when the samples come twice, in each draw."""
    pairs = [by_name[LOSS.main] for by_name in drawn if by_name is not None and LOSS.main in by_name]
    return (
        bool(pairs)
        and all(
            once.total and math.isclose(twice.total, 4 * once.total, rel_tol=_ROUNDING)
            for once, twice in pairs
        )
        and not all(_counts_pairs(once, twice) for once, twice in pairs)
    )


def _counts_pairs(once: _Figure, twice: _Figure) -> bool:
    """Whether the loss counts pairs as its items, as a ranking loss does."""
    if once.items is None or twice.items is None:
        return False
    return once.items > 0 and math.isclose(twice.items, 4 * once.items, rel_tol=_ROUNDING)


def _constant_part(drawn: Sequence[_Figures | None]) -> bool:
    """Whether a total grows only a little with the samples, in each draw: a sum plus a much larger part per
    batch.
    """
    totals = [each[LOSS.main] for each in drawn if each is not None and LOSS.main in each]
    grown = [twice.total - once.total for once, twice in totals]
    if len(grown) < 2 or not all(_counted(*total) for total in totals):
        return False
    shares = [
        abs(each / once.total) if once.total else 0.0 for each, (once, _) in zip(grown, totals, strict=True)
    ]
    little = all(_SEEN < share <= _NOISE for share in shares)
    return little and max(shares) < 2 * min(shares) and len({each > 0 for each in grown}) == 1


def _counted(once: _Figure, twice: _Figure) -> bool:
    """Whether the count of items doubles with the samples; a loss with one item per batch may be a mean."""
    if once.items is None or twice.items is None:
        return True
    return once.items > 0 and math.isclose(twice.items, 2 * once.items, rel_tol=1e-3)


def _stays(values: Sequence[tuple[float, float]]) -> bool:
    ones, twos = zip(*values, strict=True)
    middle = sum(ones) / len(ones)
    if not all(map(math.isfinite, [*ones, *twos])) or abs(middle) < 1e-12:
        return False
    several = len(values) > 1  # a single draw does not show whether a sum is random
    # torch's random numbers are the same for the samples and the samples twice (CommonNumbers).
    if several and all(one and abs(two / one - 1) <= _ROUNDING for one, two in values):
        return True
    spread = max(abs(each / middle - 1) for each in ones)
    allowed = _ROUNDING if several and spread <= _ROUNDING else _NOISE
    return spread <= _NOISE and all(abs(two / middle - 1) <= allowed for two in twos)
