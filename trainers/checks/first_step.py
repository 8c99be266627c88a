"""The first step of each start, checked on all ranks for mistakes that would stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from trainers.checks.additivity import LOSS, Additivity
from trainers.checks.first_evaluation import FirstEvaluation
from trainers.data.batches import FirstBatch, TrainingLoader
from trainers.distributed.process_group import RankContext
from trainers.evaluation.early_stopping import EarlyStopping
from trainers.optimization.engine import Engine
from trainers.optimization.weights import Weights
from trainers.task import Loss, Task
from trainers.task.contract import drawn_as_declared, validate_first_loss, validate_loss
from trainers.task.training_state import TrainingState


class FirstStep:
    """Checks around the first step after each start; the later ones cost nothing.

    The loss is a sum; nothing draws from a generator that the task does not declare; all ranks have the
    same weights afterwards, and all weights that want a gradient are trained; the first batches of the
    other sets can be evaluated.
    """

    validate: Callable[[Task, Any], Loss]
    """What looks at the loss that a task returns: closely in the first step."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        state: TrainingState,
        context: RankContext,
        weights: Weights,
        early_stopping: EarlyStopping,
    ):
        self._task = task
        self._weights = weights
        self.additivity = Additivity(engine, state, context)
        self._evaluation = FirstEvaluation(task, engine, state, context, early_stopping, self.additivity)
        self._around: AbstractContextManager[None]

    def evaluates(self, first: Mapping[str, FirstBatch]) -> None:
        """Take the first batches of the validation and test sets, by name."""
        self._evaluation.first = first

    def begin(self, train: TrainingLoader, *, validates: bool) -> None:
        """A training starts; `validates`: whether there is a validation set."""
        self.validate = validate_first_loss
        self._around = self._checked(train, validates=validates)

    def around(self) -> AbstractContextManager[None]:
        """Around a step.

        Raises:
            ConfigError: with what was found, which of the task's methods it comes of, and how to mend it.
            Exception: the task cannot evaluate the first batch of the validation set.
        """
        return self._around

    @contextmanager
    def _checked(self, train: TrainingLoader, *, validates: bool) -> Iterator[None]:
        pair, train.pair = train.pair, None
        self.additivity.check(LOSS, self._task, pair)
        with drawn_as_declared(self._task):
            yield
        self._weights.check_alike()
        self._weights.check_trained()
        self._evaluation.check(validates=validates)
        self.validate, self._around = validate_loss, nullcontext()
