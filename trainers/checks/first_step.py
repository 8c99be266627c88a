"""The first step of each start, looked at on all ranks for mistakes that would stay silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainers.checks.additivity import LOSS, Additivity
from trainers.checks.first_evaluation import FirstEvaluation
from trainers.data.batches import TrainingLoader
from trainers.optimization.weights import Weights
from trainers.task import Task
from trainers.task.contract import drawn_as_declared


@contextmanager
def first_step(
    task: Task,
    train: TrainingLoader,
    additivity: Additivity,
    weights: Weights,
    evaluation: FirstEvaluation,
    *,
    validates: bool,
) -> Iterator[None]:
    """Around it; `validates`: whether there is a validation set.

    Raises:
        ConfigError: with what was found, which of the task's methods it comes of, and how to mend it.
        Exception: the task cannot evaluate the first batch of the validation set.
    """
    pair, train.pair = train.pair, None
    additivity.check(LOSS, task, pair)
    with drawn_as_declared(task):
        yield
    weights.check_alike()
    weights.check_trained()
    evaluation.check(validates=validates)
