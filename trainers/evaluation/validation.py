"""The validation during training, in which ranks may agree to stop, and the test after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from castoff.trainers.data.loaders import Batch, EvaluationLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import EVALUATION, derived, seed_all
from castoff.trainers.distributed.stopping import Stopping
from castoff.trainers.distributed.watchdog import Watchdog
from castoff.trainers.evaluation.metrics import Metrics, after_evaluation, evaluate, evaluate_whole
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.task import Task
from castoff.trainers.task.training_state import TrainingState


class WholeSet:
    """The data loader for a custom evaluator: the batches of the whole set, in order."""

    def __init__(
        self,
        loader: EvaluationLoader,
        paced: Callable[[Iterable[Batch]], Iterable[Batch]] = lambda batches: batches,
    ):
        self.dataset = loader.dataset
        self.batch_size = loader.batch_size
        self._loader = loader
        self._paced = paced

    def __len__(self) -> int:
        """Number of batches."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the collated batches, on the CPU."""
        return (batch.data for batch in self._paced(self._loader))


class Validation:
    """Evaluates the model on the ranks' shares of the validation set."""

    def __init__(
        self,
        task: Task,
        engine: Engine,
        context: RankContext,
        state: TrainingState,
        stopping: Stopping,
        watch: Watchdog,
    ):
        self._task = task
        self._engine = engine
        self._context = context
        self._state = state
        self._stopping = stopping
        self._watch = watch

    def __call__(self, val: EvaluationLoader) -> Metrics:
        """The metrics over all ranks' samples; all ranks must call it.

        Raises:
            StoppedInside: the ranks have agreed to stop between two batches.
        """
        with self._engine.gathered():
            return self._judged(val)

    def _judged(self, val: EvaluationLoader) -> Metrics:
        engine, state = self._engine, self._state
        judge = self._on_all_ranks if self._task.whole_set_evaluator is None else self._on_rank_0
        metrics = judge(val)
        with self._watch.allow("after a validation"):
            if self._context.is_main:
                _seeded(state, 1)
                metrics.more = after_evaluation(self._task, engine.judged, engine.autocast)
            self._context.barrier("the end of a validation")
        return metrics

    def _on_all_ranks(self, val: EvaluationLoader) -> Metrics:
        return evaluate(
            self._task,
            self._engine.judged,
            val,
            self._context,
            draw_from=self._state.draw_from,
            autocast=self._engine.autocast,
            paced=self._paced,
            waiting=partial(self._watch.allow, "after a validation"),
        )

    def _on_rank_0(self, val: EvaluationLoader) -> Metrics:
        """Evaluate the whole set on rank 0 by the task's `whole_set_evaluator`."""
        evaluator, engine = self._task.whole_set_evaluator, self._engine
        assert evaluator is not None

        def decide() -> Metrics:
            _seeded(self._state, 2)
            batches = WholeSet(val, partial(self._watch.each, doing="validation"))
            return evaluate_whole(evaluator, engine.judged, batches, engine.autocast)

        with self._watch.allow("a validation on rank 0"):
            return self._context.on_main(decide)

    def _paced(self, batches: Iterable[Batch], rounds: int) -> Iterator[Batch]:
        """Yield the batches; before each one the ranks may agree to stop."""
        return self._watch.each(self._stopping.between(batches, rounds), "validation")


def tested(task: Task, engine: Engine, test: EvaluationLoader, state: TrainingState) -> Metrics:
    """The test set's metrics, on this rank alone; it waits for no other rank."""
    judging = task.test_task()
    if judging.whole_set_evaluator is not None:
        _seeded(state, 3)
        return evaluate_whole(judging.whole_set_evaluator, engine.judged, WholeSet(test), engine.autocast)
    alone = RankContext(0, 1, state.device, alone=True)
    return evaluate(
        judging,
        engine.judged,
        test,
        alone,
        draw_from=state.draw_from,
        autocast=engine.autocast,
    )


def _seeded(state: TrainingState, purpose: int) -> None:
    """Seed the random numbers by the step and the purpose, the same on any number of ranks."""
    seed = derived(EVALUATION, state.seed, state.step, purpose)
    state.draw_from(seed)
    seed_all(seed)  # all generators: `rng_sources` covers only `loss` and `evaluate`
