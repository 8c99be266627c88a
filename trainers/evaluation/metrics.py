"""Evaluates a model, with exact sums over all samples of all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from operator import itemgetter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from castoff.trainers.data.loaders import Batch, EvaluationLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import seed_all
from castoff.trainers.task import Evaluated, Sum, Task, WholeSetEvaluator, move
from castoff.trainers.task.contract import metrics as checked
from castoff.trainers.task.contract import validate_first_sums

_SQUARES = "loss, squared means of batches"


class Metrics(dict[str, float]):
    """Metrics by name, and the spread of the loss over batches."""

    spread: float = 0.0
    """Standard deviation of the batches' mean losses, weighted by their counts; NaN for a single batch."""
    more: Mapping[str, float] = {}
    """Metrics from the task's `after_evaluation`, only for the log; on rank 0."""

    def to_record(self, *, better: bool) -> dict[str, Any]:
        """The record for the evaluated checkpoint; `better`: the model is the best so far."""
        return {"metrics": dict(self), "spread": self.spread, "more": dict(self.more), "better": better}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Metrics:
        """The metrics in a record."""
        metrics = cls({str(name): float(value) for name, value in record["metrics"].items()})
        metrics.spread, metrics.more = float(record["spread"]), record["more"]
        return metrics


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """The model in eval mode; at the end of the context each module gets its previous mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, was_training in modes:
            module.training = was_training


def evaluate(
    task: Task,
    model: nn.Module,
    judged: EvaluationLoader,
    context: RankContext,
    *,
    draw_from: Callable[[int], None] = seed_all,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    paced: Callable[[Iterable[Batch], int], Iterable[Batch]] = lambda batches, rounds: batches,
    waiting: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Metrics:
    """The task's metrics over the samples of all ranks' loaders.

    `model` is the bare module: DistributedDataParallel would wait in its forward pass for ranks with fewer
    batches. Every rank must call this; the result is the same on all. `draw_from` seeds the random numbers of
    a batch. `paced` is called with the batches and the largest number of batches of any rank, and returns the
    batches to evaluate; it may raise. `waiting`: a context for rank 0's work while others wait.
    """
    sums: dict[str, list[float | torch.Tensor]] = {}
    kept: list[tuple[int, Any]] = []
    _same_buffers(model, context)
    with torch.no_grad(), evaluating(model):
        for batch in paced(judged, judged.rounds):
            draw_from(batch.seed)
            with autocast():
                result = task.evaluate(model, move(batch.data, context.device))
            measured = result.sums if isinstance(result, Evaluated) else result
            if not sums:
                measured = validate_first_sums(task, measured)
            _add(sums, measured, batch.samples)
            if isinstance(result, Evaluated):
                kept.append((batch.number, result.kept))
    names, something = _of_all(sorted(sums), bool(kept), context)
    totals = _over_ranks(context, sums, names)
    squares, weight = totals.pop(_SQUARES, (0.0, 0.0))
    metrics = Metrics(checked(task, "finish", task.finish(totals)))
    if weight:
        total, count = totals["loss"]
        single = judged.number_of_batches == 1
        metrics.spread = math.nan if single else math.sqrt(max(squares / weight - (total / count) ** 2, 0.0))
    if something:
        with waiting():
            metrics |= _measured(task, kept, judged.seed, context)
    return metrics


def evaluate_whole(
    evaluator: WholeSetEvaluator,
    model: nn.Module,
    batches: Any,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Metrics:
    """The metrics from a task's own evaluator, on this rank alone."""
    with torch.no_grad(), evaluating(model), autocast():
        metrics = Metrics(evaluator(model, batches))
    metrics.spread = math.nan  # the batches' losses are unknown
    return metrics


def _measured(task: Task, mine: list[tuple[int, Any]], seed: int, context: RankContext) -> dict[str, float]:
    """The metrics from the task's `measure`, of all batches in order; on all ranks."""
    every = context.gather_on_main(mine)

    def decide() -> dict[str, float]:
        seed_all(seed)  # all generators: `rng_sources` covers only `loss` and `evaluate`
        kept = sorted(chain.from_iterable(every), key=itemgetter(0))
        return checked(task, "measure", task.measure([part for _, part in kept]))

    return context.on_main(decide)


def after_evaluation(
    task: Task, model: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]
) -> dict[str, float]:
    """The metrics from the task's `after_evaluation`, on rank 0 alone."""
    with torch.no_grad(), evaluating(model), autocast():
        return checked(task, "after_evaluation", task.after_evaluation(model))


def _add(sums: dict[str, list[float | torch.Tensor]], measured: Mapping[str, Sum], samples: int) -> None:
    for name, (total, count) in measured.items():
        pair = sums.setdefault(name, [0.0, 0.0])
        pair[0] = pair[0] + _double(total)
        pair[1] = pair[1] + _double(samples if count is None else count)
    if "loss" in measured:
        total, count = measured["loss"]
        total, count = _double(total), _double(samples if count is None else count)
        pair = sums.setdefault(_SQUARES, [0.0, 0.0])
        pair[0] = pair[0] + total * total / (count + (count == 0))
        pair[1] = pair[1] + count


def totals(measured: Mapping[str, Sum], samples: int) -> dict[str, tuple[float, float]]:
    """Sums and counts of a batch, in the form that `finish` takes."""
    return {
        name: (float(_double(total)), float(_double(samples if count is None else count)))
        for name, (total, count) in measured.items()
    }


def _double(value: torch.Tensor | float) -> torch.Tensor | float:
    if not isinstance(value, torch.Tensor):
        return float(value)
    value = value.detach()
    return value.cpu().double() if value.device.type == "mps" else value.double()


def _over_ranks(
    context: RankContext, sums: Mapping[str, list[float | torch.Tensor]], names: list[str]
) -> dict[str, tuple[float, float]]:
    """Sums and counts over all ranks, in float64."""
    flat = [float(part) for name in names for part in sums.get(name, (0.0, 0.0))]
    total = context.sum(torch.tensor(flat, dtype=torch.float64)).tolist()
    return {name: (total[2 * index], total[2 * index + 1]) for index, name in enumerate(names)}


def _same_buffers(model: nn.Module, context: RankContext) -> None:
    """Copy rank 0's buffers to all ranks: DistributedDataParallel does so before a step, not after."""
    if context.distributed and context.world_size > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def _of_all(names: list[str], something: bool, context: RankContext) -> tuple[list[str], bool]:
    """The names of metrics from all ranks (a rank without batches has none), and whether any rank kept
    outputs.
    """
    if not context.distributed or context.world_size == 1:
        return names, something
    every: list[tuple[list[str], bool]] = [([], False)] * context.world_size
    dist.all_gather_object(every, (names, something))
    return sorted({name for given, _ in every for name in given}), any(keeps for _, keeps in every)
