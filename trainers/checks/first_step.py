"""Checks the first step after each start, on all ranks, for mistakes that would otherwise go unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from castoff.trainers.checks.additivity import LOSS, Additivity
from castoff.trainers.checks.first_evaluation import FirstEvaluation
from castoff.trainers.checks.lost_state import changes_are_kept
from castoff.trainers.checks.modes import warn_of_eval_mode
from castoff.trainers.data.batches import FirstBatch, TrainingLoader
from castoff.trainers.data.loaders import EvaluationLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.evaluation.early_stopping import EarlyStopping
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.weights import Weights
from castoff.trainers.task import Loss, Task
from castoff.trainers.task.contract import drawn_as_declared, validate_first_loss, validate_loss
from castoff.trainers.task.training_state import TrainingState


class FirstStep:
    """Checks around the first step after each start; later steps are not checked.

    It checks that the model is in training mode; the loss is a sum; random numbers come only from declared
    generators; checkpoints keep all state that the step changes; the loss depends on the model; all ranks
    have the same weights afterwards; all weights that require a gradient are trained; and the first batches
    of the other sets can be evaluated.
    """

    validate: Callable[[Task, Any], Loss]
    """Checks the loss that a task returns, in detail in the first step."""

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
        self._model = engine.bare
        self._context = context
        self._weights = weights
        self.additivity = Additivity(engine, state, context)
        self._evaluation = FirstEvaluation(task, engine, state, context, early_stopping, self.additivity)
        self._wanted = False
        self._around: AbstractContextManager[None]

    def evaluates(self, first: Mapping[str, FirstBatch]) -> None:
        """Set the first batches of the validation and test sets, by name."""
        self._evaluation.first = first

    def begin(self, train: TrainingLoader, val: EvaluationLoader | None, *, wanted: bool) -> None:
        """Prepare the checks of the first step; without `wanted` only the task's results are checked."""
        self.validate = validate_first_loss
        self._wanted = wanted
        self._around = self._checked(train, val, wanted=wanted)

    def around(self) -> AbstractContextManager[None]:
        """A context for a step, with the checks if it is the first.

        Raises:
            ConfigError: a check failed; the error names the task's method and the remedy.
            Exception: the task cannot evaluate the first batch of the validation set.
        """
        return self._around

    def of_hook(self, name: str) -> AbstractContextManager[None]:
        """A context for the first call of a task's hook, with the check that checkpoints keep its changes."""
        if not self._wanted:
            return nullcontext()
        return changes_are_kept(self._task, self._model, self._context, name)

    @contextmanager
    def _checked(
        self, train: TrainingLoader, val: EvaluationLoader | None, *, wanted: bool
    ) -> Iterator[None]:
        pair, train.pair = train.pair, None
        if wanted and self._context.is_main:
            warn_of_eval_mode(type(self._task).__qualname__, self._model)
        self.additivity.check(LOSS, self._task, pair)
        with ExitStack() as around:
            if wanted:
                around.enter_context(changes_are_kept(self._task, self._model, self._context))
            around.enter_context(drawn_as_declared(self._task))
            yield
        self._weights.check_reached()
        self._weights.check_alike()
        self._weights.check_trained()
        self._evaluation.check(val)
        self.validate, self._around = validate_loss, nullcontext()
