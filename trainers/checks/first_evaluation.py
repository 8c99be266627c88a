"""Evaluates the first batch of the validation and test sets in the first step of training.

A mistake in a task's evaluation would otherwise show only after an epoch, or at the end.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from castoff.trainers.checks.additivity import EVALUATE, Additivity
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.batches import FirstBatch
from castoff.trainers.data.loaders import Batch, EvaluationLoader
from castoff.trainers.distributed.errors import of_a_collective
from castoff.trainers.distributed.explanations import brief, place_of
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.evaluation.early_stopping import EarlyStopping
from castoff.trainers.evaluation.metrics import evaluating, totals
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.task import Evaluated, Task, move
from castoff.trainers.task.contract import metrics, validate_first_sums
from castoff.trainers.task.training_state import TrainingState
from castoff.trainers.task.untouched import untouched

logger = logging.getLogger(__name__)


_SWITCH = "training.check_first_step: false skips this"


class FirstEvaluation:
    """Evaluates the first batches, and restores all state afterwards."""

    first: Mapping[str, FirstBatch]
    """The first batches of the validation and the test set, by name, if read; each is evaluated once."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        state: TrainingState,
        context: RankContext,
        early_stopping: EarlyStopping,
        additivity: Additivity,
    ):
        self.first = {}
        self._task = task
        self._engine = engine
        self._state = state
        self._context = context
        self._early_stopping = early_stopping
        self._additivity = additivity

    def check(self, val: EvaluationLoader | None) -> None:
        """Check that the sets can be evaluated; all ranks must call it. `val`: the validation loader, if any.

        Problems that may not occur with more batches, or that concern only the test, are warnings.

        Raises:
            ConfigError: `evaluate` returns a mean, or waits for ranks that have no batch; or a metric watched
                by early stopping is missing.
            Exception: the task cannot evaluate the first batch of the validation set.
        """
        first, self.first = self.first, {}
        with self._engine.gathered():
            if val is not None and self._context.everywhere("validation" in first):
                self._validated(first["validation"], val)
            if self._context.everywhere("test" in first):
                self._tested(first["test"])

    def _validated(self, first: FirstBatch, val: EvaluationLoader) -> None:
        task = self._task
        if task.whole_set_evaluator is not None:
            return
        before = self._context.collectives()
        try:
            result = self._evaluated(task, first.batch)
        except Exception as error:
            if self._context.is_main and not isinstance(error, ConfigError) and not of_a_collective(error):
                logger.error(
                    "Evaluating the first batch of the validation set failed. This is done in the first "
                    "step, so that mistakes show before an epoch is over; %s",
                    _SWITCH,
                )
            raise
        collectives = self._context.collectives() - before
        if collectives > 0 and not val.is_even:
            raise ConfigError([self._waits_in_vain(val, collectives)])
        self._context.on_main(partial(self._see_measures, task, result, first.batch))
        self._see_sums(task, first)

    def _waits_in_vain(self, val: EvaluationLoader, collectives: int) -> str:
        task = type(self._task).__qualname__
        method = "loss, which evaluate calls," if type(self._task).evaluate is Task.evaluate else "evaluate"
        return (
            f"validation: {task}.{method} waits for other ranks in each batch ({collectives} "
            f"collectives), but the ranks have unequal numbers of batches: {val.number_of_batches} of "
            f"them are divided among {self._context.world_size} ranks, and ranks with more batches would "
            "wait forever. Return sums and call no collectives in evaluation: the trainer adds up what "
            "the ranks return. Or choose validation.batch_size so that all ranks have equally many "
            "batches"
        )

    def _tested(self, first: FirstBatch) -> None:
        wrong: Exception | None = None
        tester = self._task
        try:
            tester = self._task.test_task()
            if tester.whole_set_evaluator is None:
                result = self._evaluated(tester, first.batch)
                if self._context.is_main:
                    self._measures(tester, result, first.batch)
        except Exception as error:  # noqa: BLE001  # the test may never be run
            wrong = error
        if wrong is not None and self._context.is_main:
            _warn("test", wrong)
        has_own_sums = tester is not self._task and tester.whole_set_evaluator is None
        if self._context.everywhere(wrong is None and has_own_sums):
            self._see_sums(tester, first)

    def _evaluated(self, task: Task, batch: Batch) -> Evaluated:
        """Call `evaluate` with the batch, on all ranks, since it may communicate."""
        model = self._engine.judged
        data = move(_copy(batch.data), self._context.device)
        with untouched(model, task), torch.no_grad(), evaluating(model), self._engine.autocast():
            self._state.draw_from(batch.seed)
            result = task.evaluate(model, data)
        sums, kept = result if isinstance(result, Evaluated) else (result, None)
        return Evaluated(validate_first_sums(task, sums), kept)

    def _see_measures(self, task: Task, given: Evaluated, batch: Batch) -> None:
        try:
            measures = self._measures(task, given, batch)
        except Exception as error:
            if isinstance(error, (ConfigError, ImportError)) or type(error) is NameError:
                raise
            _warn("validation", error)
        else:
            self._see_watched(measures)

    def _measures(self, task: Task, given: Evaluated, batch: Batch) -> dict[str, float]:
        with untouched(self._engine.judged, task):
            measures = metrics(task, "finish", task.finish(totals(given.sums, batch.samples)))
            if given.kept is not None:
                measures |= metrics(task, "measure", task.measure([given.kept]))
        return measures

    def _see_watched(self, found: dict[str, float]) -> None:
        try:
            self._early_stopping.check(found)
        except ConfigError as error:
            remedy = f"if other batches or later epochs have this metric, {_SWITCH}"
            raise ConfigError([f"{problem}; {remedy}" for problem in error.problems]) from None

    def _see_sums(self, task: Task, first: FirstBatch) -> None:
        if type(task).evaluate is not Task.evaluate:  # the default uses `loss`, which is checked itself
            self._additivity.check(EVALUATE, task, first.pair)


def _copy(data: Any) -> Any:
    """A copy of a batch, which may share objects with the data set, and be changed by the evaluation."""
    try:
        return copy.deepcopy(data)
    except Exception:  # noqa: BLE001  # not everything can be copied
        return data


def _warn(name: str, error: Exception) -> None:
    logger.warning(
        "The first batch of the %s set cannot be evaluated: %s, %s. Ignore this if the evaluation needs "
        "something that a single batch lacks, or that training creates later; %s",
        name,
        brief(error),
        place_of(error),
        _SWITCH,
    )
