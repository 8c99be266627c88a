"""Evaluates the first batch of the validation and test sets in the first step of training.

A mistake in how a task evaluates would otherwise show after an epoch, or after all of them.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping

from trainers.core.additivity import EVALUATE, Additivity, kept
from trainers.core.data import Batch
from trainers.core.distributed import Place
from trainers.core.early_stopping import Judge
from trainers.core.engine import Engine
from trainers.core.evaluation import Measures, evaluate
from trainers.core.fields import ConfigError
from trainers.core.loading import FirstBatch
from trainers.core.randomness import undisturbed
from trainers.core.state import TrainingState
from trainers.task import Task

logger = logging.getLogger(__name__)


class FirstEvaluation:
    """Evaluates the first batches, and leaves everything as it was."""

    first: Mapping[str, FirstBatch]
    """Of the validation and the test set, by name, as far as they were read; they are evaluated once."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        state: TrainingState,
        place: Place,
        judge: Judge,
        additivity: Additivity,
    ):
        self.first = {}
        self._task = task
        self._engine = engine
        self._state = state
        self._place = place
        self._judge = judge
        self._additivity = additivity

    def check(self, *, validates: bool) -> None:
        """See that the sets can be judged by; all ranks must call it.

        Raises:
            ConfigError: what `evaluate` gives is no sum, or no measure is what early stopping watches.
            Exception: whatever the task raises.
        """
        first, self.first = self.first, {}
        task, place = self._task, self._place
        if validates and place.everywhere("validation" in first) and task.whole_set_evaluator is None:
            self._see_watched(self._measures("validation", task, first["validation"]))
            self._see_sums(task, first["validation"])
        tester = task.tester() if place.everywhere("test" in first) else None
        if tester is not None and tester.whole_set_evaluator is None:
            self._measures("test", tester, first["test"])
            if tester is not task:
                self._see_sums(tester, first["test"])

    def _measures(self, name: str, task: Task, first: FirstBatch) -> Measures:
        """Of the batch, on all ranks also where one alone will test: a loss may gather from the others."""
        model = self._engine.judged
        try:
            with undisturbed(), kept(model):
                # A copy of the task, so that what it counts in itself is not counted twice.
                return evaluate(
                    *(copy.copy(task), model, _One(first.batch), self._place),
                    draw_from=self._state.draw_from,
                    autocast=self._engine.autocast,
                )
        except Exception as error:
            if self._place.is_main and not isinstance(error, ConfigError):  # which says it all
                logger.error(
                    "Evaluating the first batch of the %s set failed. This is done in the first step, so "
                    "that mistakes show before an epoch is over; training.check_first_step: false skips it",
                    name,
                )
            raise

    def _see_watched(self, measures: Measures) -> None:
        try:
            self._judge.check(measures)
        except ConfigError as error:
            switch = "if other batches than the first have it, training.check_first_step: false skips this"
            raise ConfigError([f"{problem}; {switch}" for problem in error.problems]) from None

    def _see_sums(self, task: Task, first: FirstBatch) -> None:
        if type(task).evaluate is not Task.evaluate:  # which takes the sums of `loss`
            self._additivity.check(EVALUATE, task, first.pair)


class _One:
    """A set of one batch, which every rank has."""

    rounds = 1

    def __init__(self, batch: Batch):
        self.seed = batch.seed
        self._batch = batch

    def __iter__(self) -> Iterator[Batch]:
        yield self._batch
