"""TrainerDDP: the training loop that every rank of a job runs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from trainers.core.additivity import Additivity
from trainers.core.agreement import agree_on_configuration, agree_on_sizes
from trainers.core.best import Best
from trainers.core.checkpoint import Checkpoints, finite
from trainers.core.config import Config
from trainers.core.configured import ConfiguredTask, task_of
from trainers.core.continuation import Continuation
from trainers.core.contract import (
    KeptTask,
    a_loss,
    built_data,
    declared_generators,
    first_loss,
)
from trainers.core.data import EvaluationLoader, Group, TrainingLoader, loaders, must_be
from trainers.core.distributed import Place, cleanup_ddp, initialize_ddp, place_of
from trainers.core.early_stopping import Judge
from trainers.core.engine import Engine
from trainers.core.evaluation import Measures, evaluating
from trainers.core.first_evaluation import FirstEvaluation
from trainers.core.first_step import first_step
from trainers.core.folder import RunFolder
from trainers.core.garbage import collected_together
from trainers.core.learning_rate import LearningRate
from trainers.core.optimizer import make_optimizer
from trainers.core.paths import expanded
from trainers.core.probing import probed
from trainers.core.randomness import MODEL, derived, seed_all
from trainers.core.reports import Reports
from trainers.core.sinks import check_packages
from trainers.core.state import Registry, Stateful, TrainingState
from trainers.core.stopping import StoppedEarly, StoppedInside, Stopping
from trainers.core.tuning import Search
from trainers.core.validation import Validation, tested
from trainers.core.watch import Watch
from trainers.core.weights import Weights
from trainers.core.wrapping import prepared_model
from trainers.task import Loss, Task, move

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP:
    """Trains a task's model on every rank of a process group, or alone without one.

    `config` is a `Config`, or the plain data of one; `task` wins over the one that it names, and `reports`
    makes what tells of the training. Call `initialize_ddp` first where there are several ranks. Every rank
    makes one of these, and calls `prepare_dataloaders` and `run_training`; `run_test` is for whichever rank
    wants to know.

    Raises:
        ConfigError: the configuration is wrong, or lacks what this needs.
    """

    describes: Callable[[Config], Task] = ConfiguredTask
    """Makes the task of a configuration that names none."""

    # As long as the loop lasts.
    keeper: Continuation
    stopping: Stopping
    watch: Watch
    validation: Validation
    search: Search

    def __init__(
        self,
        rank: int,
        config: Mapping[str, Any] | Config,
        task: Task | None = None,
        *,
        reports: Callable[[Path, Config, Place], Reports] = Reports,
    ):
        self.config = config = Config.of(config)
        self.rank = rank
        self.logger = logging.getLogger(f"{__name__}.{config.name}")
        self.place = place_of(rank, config)
        if self.place.is_main:
            self.logger.info("Using device: %s", self.place.device)
        seed_all(derived(MODEL, config.training.seed, 2))
        self.task = task_of(config, task, type(self).describes)
        drawn_from = declared_generators(self.task, "task")
        training, device = config.training, self.place.device
        folder = expanded(training.path, "training.path").absolute()
        self.state = TrainingState(training.seed, rank, device, drawn_from, training.precision, folder)
        agree_on_configuration(config, self.task, self.place)
        self.task.state = self.state
        if isinstance(self.task, ConfiguredTask):
            self.task.trainer = self
        self.task.setup(self.place)
        seed_all(derived(MODEL, config.training.seed))  # the same weights on every rank
        self.model = prepared_model(self.task, config, self.place)
        """The bare module: after `run_training` with the last step's weights, after `take_best` the best."""
        self.engine = Engine(self.model, make_optimizer(config, self.task, self.model), config, self.place)
        self.weights = Weights(self.task, self.engine, self.state, config, self.place)
        self.additivity = Additivity(self.engine, self.state, self.place)
        self.rates = LearningRate(config, self.engine.optimizer, world_size=self.place.world_size)
        self.judge = Judge(config)
        self.first_evaluation = FirstEvaluation(
            *(self.task, self.engine, self.state, self.place, self.judge, self.additivity)
        )
        self.place.decided(lambda: check_packages(config.logging))
        # What is wrong is said before an earlier run's folder is set aside.
        self.run_folder = RunFolder(config, self.place)
        self.folder = self.run_folder.path
        """The run's folder: checkpoints, metrics.jsonl and config.yaml."""
        self.checkpoints = Checkpoints(
            *(self.folder / "checkpoints", config.training.keep_checkpoints),
            infinite=[name for name, each in self.model.named_buffers() if not finite(each)],
        )
        self.best = Best(self.checkpoints, self.engine, self.place)
        self.reports = reports(self.folder, config, self.place)
        self._given = task
        self._look: Callable[[Task, Any], Loss]
        self._observed: AbstractContextManager[None]
        self._collect: Callable[[int], None]

    @property
    def train_data(self) -> list[dict[str, float]]:
        """The training means of each epoch, over all ranks."""
        return self.state.train_data

    @property
    def val_data(self) -> list[dict[str, float]]:
        """The measures of each validation, over all ranks."""
        return self.state.val_data

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.state.epoch

    @property
    def step(self) -> int:
        """Optimizer steps that are done."""
        return self.state.step

    def prepare_dataloaders(self) -> tuple[TrainingLoader, EvaluationLoader, EvaluationLoader]:
        """This rank's loaders of the training, validation and test set.

        Training and validation are dealt out over the ranks; a test loader has the whole set, and so has one
        for an evaluator that judges alone.
        """
        config, collate = self.config, self.task.collate
        seed_all(derived(MODEL, config.training.seed, 1))
        self.splits = splits = built_data(self.task, self.task.build_data())
        agree_on_sizes(splits, self.place)
        found = probed(splits, config, self.place, collate)
        self.first_evaluation.first = found.first
        self.reports.sizes(splits)
        whole = self.task.whole_set_evaluator is not None
        made = loaders(splits, config, self.place, collate, whole=whole)
        made[0].pair = found.pair
        return made

    # --- The loop ---------------------------------------------------------------------------------

    def run_training(
        self, train: TrainingLoader, val: EvaluationLoader | None, trial: Any = None
    ) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Train to the end, from the newest checkpoint if this run has one.

        Returns the means of each epoch and the measures of each validation, over all ranks. `trial` is one
        of Optuna's, on rank 0: it is told what early stopping watches first, else the loss, after each
        validation, and may end the training.

        Raises:
            StoppedEarly: somebody asked for a stop, and a checkpoint holds all that was done. As a
                SystemExit it ends the program unless it is caught.
            NonFiniteError: a gradient is not finite, and such steps are not to be skipped.
            ConfigError: the run's checkpoints were made with a configuration that does not fit.
            optuna.TrialPruned: the trial was ended, on all ranks, with a checkpoint as at any other end.
            TypeError: a loader is not one of this trainer's.
        """
        must_be(TrainingLoader, train, "train")
        if val is not None:
            must_be(EvaluationLoader, val, "val")
            val = val if len(val.dataset) else None
        self.best.forget()
        self.search = Search(trial, self.judge.watched, self.config)
        self.place.decided(self.search.begin)
        with ExitStack() as stack:
            stack.enter_context(self.checkpoints)
            self._prepare(train, stack, validates=val is not None)
            try:
                self._resume(val)
                with self.reports.training(self.state, self._total, self.config.training.num_epochs):
                    self._train(train, val)
                self._finish(val)
            except StoppedEarly as stopped:
                # What is left of DDP would end the group under Python's lock, for which gloo may wait.
                traceback.clear_frames(stopped.__traceback__)
                raise
        self.search.end(self.step)
        return self.train_data, self.val_data

    def _train(self, train: TrainingLoader, val: EvaluationLoader | None) -> None:
        state = self.state
        while not self._over():
            self.reports.begin_epoch(state)
            for group in self.reports.waits(train.groups(state.epoch, state.consumed)):
                if self.stopping.agreed():
                    self._stop_early()
                with self._observed:
                    self._step(group)
                self._after_step(val)
                if self._over():
                    return
            self._end_epoch(val)

    def _step(self, group: Group) -> None:
        """One optimizer step: the micro-batches of all ranks' groups are one batch."""
        state, engine = self.state, self.engine
        state.begin_step()
        engine.begin(state.step)
        for micro in group.micros:
            batch = move(micro.data, self.place.device)
            with engine.sync(last=micro.last), engine.autocast():
                loss = engine.loss(partial(self._loss, batch))
            engine.backward(loss, group.samples, len(group.micros), last=micro.last)
            self.reports.add(loss, micro.samples)
        self.rates.before_step(state.step)
        engine.apply()
        self.rates.after_step()
        state.step += 1
        state.consumed += 1

    def _loss(self, batch: Any, model: nn.Module) -> Loss:
        return self._look(self.task, self.task.loss(model, batch))

    def _after_step(self, val: EvaluationLoader | None) -> None:
        """What is due every so many steps."""
        step, training = self.state.step, self.config.training
        self.stopping.step_took(self.reports.step_done(self.state))
        self.watch.step_done(step)
        self._collect(step)
        self._look, self._observed = a_loss, nullcontext()
        if _due(step, training.log_every):
            self.reports.log(self.state, self.engine, self.rates.used, self.keeper.stall)
        if _due(step, self.config.validation.every_steps):
            self._validate(val)
        if _due(step, training.checkpoint_every_steps):
            with self.reports.paused():
                self._save()

    def _end_epoch(self, val: EvaluationLoader | None) -> None:
        self.train_data.append(self.reports.end_epoch(self.state))
        self.state.epoch += 1
        self.state.consumed = 0
        self.rates.after_epoch()
        if val is None or self.config.validation.every_steps is None:
            self._validate(val)
            return
        with self.reports.paused():  # before it is saved: a run that goes on from there would not
            self._hand_over(better=False)
        if _due(self.state.epoch, self.config.training.checkpoint_at):
            self._save()
        self.weights.check_trained()

    # --- Validation -------------------------------------------------------------------------------

    def _validate(self, val: EvaluationLoader | None) -> None:
        """Save, then judge the model: a stop or a kill in between costs no step."""
        if val is None and self.state.consumed:
            return  # there is nothing to judge by but an epoch's training
        with self.reports.paused():
            self.state.validating = True
            self._save()
            self._judge(val)

    def _judge(self, val: EvaluationLoader | None) -> None:
        try:
            measures = Measures(self.train_data[-1]) if val is None else self.validation(val)
        except StoppedInside:
            self._stop_early()
        self.keeper.record(measures.to_record(better=self._take(measures, val)))

    def _take(self, measures: Measures, val: EvaluationLoader | None) -> bool:
        """Draw the conclusions from a validation, now or when it was done before; whether it is the best."""
        verdict, self.search.pruned = self.place.decided(
            lambda: (self.judge(measures), self.search.hopeless(measures, self.epoch, self.step))
        )
        self.state.validated(**verdict._asdict())
        self.rates.after_evaluation(measures.get("loss", float("nan")))
        if val is not None:
            self.val_data.append(dict(measures))
            self.reports.validated(self.state, measures)
        self._hand_over(better=verdict.better)
        return verdict.better

    def _hand_over(self, *, better: bool) -> None:
        """Have the model written as others read it."""
        with self.watch.allow("after a validation"):
            self.place.decided(partial(self._export, better=better))

    def _export(self, *, better: bool) -> None:
        with torch.no_grad(), evaluating(self.engine.judged) as judged:
            self.task.export(judged, self.folder, better=better)

    # --- Beginning and end ------------------------------------------------------------------------

    def _prepare(self, train: TrainingLoader, stack: ExitStack, *, validates: bool) -> None:
        """Make what lives as long as the loop."""
        config, training = self.config, self.config.training
        self._epoch_is_over = train.is_over
        self._total = train.total(training)
        self.rates.lasts(self._total, train.steps)
        self.reports.begin(self.rates.resolved)
        shared: dict[str, Stateful] = {"state": self.state, "engine": self.engine}
        shared |= {"rates": self.rates, "judge": self.judge, "task": KeptTask(self.task)}
        registry = Registry(shared, {"sums": self.reports.running, "data": train})
        self.keeper = Continuation(
            *(config, self._given, self.task, self.place, self.checkpoints),
            *(self.state, self.engine, self.weights, self.reports, registry),
        )
        self.stopping = stack.enter_context(Stopping(self.place))
        self.watch = stack.enter_context(Watch(self.place, config.parallel))
        self.validation = Validation(
            *(self.task, self.engine, self.place, self.state),
            *(self.stopping, self.watch),
        )
        self._look = first_loss
        self._observed = first_step(
            *(self.task, train, self.additivity, self.weights, self.first_evaluation), validates=validates
        )
        self._collect = stack.enter_context(collected_together(training.collect_garbage_every))
        stack.enter_context(self.engine.wrapped())
        stack.enter_context(self.reports.opened())
        self.engine.timed = self.reports.reduction

    def _resume(self, val: EvaluationLoader | None) -> None:
        """Go on from the run's newest checkpoint, if there is one."""
        newest = self.keeper.newest()
        if newest is None:
            newest = self.keeper.given()
        if newest is None:
            self.reports.go_back(0, 0)
            self.run_folder.write_config(self.config)
            return
        record = self.keeper.load(newest)
        if self.state.validating and record is not None and self.task.whole_set_evaluator is None:
            self._take(Measures.of_record(record), val)
        elif self.state.validating:
            self._judge(val)
        self.run_folder.write_config(self.config)
        if self._over() and not self.search.pruned:
            self.run_folder.say_it_is_over(self.step, stopped=self.state.ended)

    def _over(self) -> bool:
        state, training = self.state, self.config.training
        epochs = training.num_epochs is not None and state.epoch >= training.num_epochs
        steps = training.num_steps is not None and state.step >= training.num_steps
        # An epoch whose last step this was is still to be told of.
        all_steps = steps and not self._epoch_is_over(state.consumed)
        return self.search.pruned or state.ended or epochs or all_steps

    def _finish(self, val: EvaluationLoader | None) -> None:
        if self.state.judged != self.step:
            self._validate(val)
        if self.state.judged != self.step:  # there is nothing to judge by: of one alone it is the best
            self._hand_over(better=self.state.judged is None)
        self._save()
        self._meet("the end of training")
        self.stopping.say("done")

    def _save(self) -> None:
        """Keep where training stands; rank 0 writes while training goes on."""
        self.keeper.save()
        self.stopping.checkpoint_took(self.keeper.longest)

    def _meet(self, where: str) -> None:
        """Wait until all that was saved is on the disk, and for all ranks."""
        with self.watch.allow(where):
            self.keeper.wait()
            self.place.barrier(where)

    def _stop_early(self) -> NoReturn:
        """Save, meet once more, say `resume`, and end the program."""
        self._save()
        self._meet("the checkpoint of an early stop")
        why = self.stopping.asked() or "another rank"
        self.stopping.say("resume")
        self.logger.warning("Stopped early at step %d (%s); it can go on from there", self.step, why)
        raise StoppedEarly(f"stopped early at step {self.step}: {why}")

    # --- Testing ----------------------------------------------------------------------------------

    def run_test(self, test: EvaluationLoader) -> Measures:
        """The test set's measures with the best model that was saved, else with this one.

        For one rank alone or for all: each that calls it judges the whole set, and waits for none.

        Raises:
            CheckpointError: the best one is damaged.
            TypeError: the loader is not one of this trainer's.
        """
        must_be(EvaluationLoader, test, "test")
        self.best.load()
        measures = tested(self.task, self.engine, test, self.state)
        self.reports.tested(self.state, measures)
        return measures

    def take_best(self) -> None:
        """Take the weights of the best model that was saved, if there is one; all ranks must call it.

        Raises:
            CheckpointError: the best one is damaged; on all ranks.
        """
        self.best.take()

    def save_checkpoint(self) -> Path:
        """Keep where training stands, durably. All ranks must call it, once training has begun."""
        self.keeper.save()
        self.keeper.wait()
        self.place.barrier("a checkpoint")
        return self.checkpoints.path(self.step)

    def load_checkpoint(self, path: str | Path) -> None:
        """Take the weights of a checkpoint, and of their average; `run_training` goes on by itself.

        Raises:
            CheckpointError: it is damaged.
        """
        self.engine.load_weights(self.checkpoints.whole(Path(path)))
        self.best.forget()


def _due(count: int, every: int | None) -> bool:
    return every is not None and count % every == 0
