"""TrainerDDP: the training loop that every rank of a job runs."""

from __future__ import annotations

import logging
import traceback
from contextlib import ExitStack
from functools import partial
from typing import Any, NoReturn

from torch import nn

from castoff.trainers.assembly import Assembly
from castoff.trainers.data.batches import Group, TrainingLoader
from castoff.trainers.data.loaders import EvaluationLoader, must_be
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.stopping import StoppedEarly, StoppedInside, Stopping
from castoff.trainers.distributed.watchdog import Watchdog
from castoff.trainers.evaluation.metrics import Metrics
from castoff.trainers.evaluation.tuning import Search
from castoff.trainers.evaluation.validation import Validation
from castoff.trainers.optimization.garbage import collected_together
from castoff.trainers.task import Loss, move

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP(Assembly):
    """Trains a task's model on every rank of a process group, or alone without one.

    `config` is a `Config` or its plain data. `task` replaces the configuration's task, `reports` the class
    that reports on the training. With several ranks, call `initialize_ddp` first. Every rank makes a trainer
    and calls `prepare_dataloaders` and `run_training`; any rank may call `run_test`.

    Raises:
        ConfigError: the configuration is wrong or incomplete.
    """

    def run_training(
        self, train: TrainingLoader, val: EvaluationLoader | None, trial: Any = None
    ) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Train to the end, from the newest checkpoint if this run has one.

        Returns the means of each epoch and the metrics of each validation, over all ranks. `trial` is an
        Optuna trial, on rank 0. After each validation, the first metric that early stopping watches, or else
        the loss, is reported to it, and it may end the training.

        Raises:
            StoppedEarly: a stop was requested, and everything is saved. It is a SystemExit: uncaught, it ends
                the program.
            NonFiniteError: a gradient is not finite, and `training.non_finite` is not `skip`.
            ConfigError: the run's checkpoints were made with a configuration that does not match.
            optuna.TrialPruned: the trial was pruned, on all ranks, after a checkpoint.
            TypeError: a loader is not one of this trainer's.
        """
        must_be(TrainingLoader, train, "train")
        if val is not None:
            must_be(EvaluationLoader, val, "val")
            val = val if len(val.dataset) else None
        self.search = Search(trial, self.early_stopping.watched, self.config)
        self.context.on_main(self.search.begin)
        with ExitStack() as stack:
            self._begin(train, val, stack)
            try:
                self._resume(val)
                with self.reports.training(self.state, self._total, self.config.training.num_epochs):
                    self._train(train, val)
                self._finish(val)
            except StoppedEarly as stopped:
                # Frames that keep DDP alive would destroy the group under Python's GIL, for which gloo may
                # wait.
                traceback.clear_frames(stopped.__traceback__)
                raise
        self.search.end(self.step)
        return self.train_data, self.val_data

    # --- The loop ---------------------------------------------------------------------------------

    def _train(self, train: TrainingLoader, val: EvaluationLoader | None) -> None:
        state = self.state
        while not self._over():
            self.reports.begin_epoch(state)
            for group in self.reports.waits(train.groups(state.epoch, state.consumed)):
                if self.stopping.agreed():
                    self._stop_early()
                with self.first_step.around():
                    self._step(group)
                self._after_step(val)
                if self._over():
                    return
            self._end_epoch(val)

    def _step(self, group: Group) -> None:
        """Make an optimizer step, or one of each; the micro-batches of all ranks' groups are one batch."""
        state = self.state
        state.begin_step()
        self.rates.before_step(state.step)
        for engine in self.engine.turns(state):
            engine.begin(state.step)
            for micro in group.micros:
                batch = move(micro.data, self.context.device)
                with engine.sync(last=micro.last), engine.autocast():
                    loss = engine.loss(partial(self._loss, batch))
                engine.backward(loss, group.samples, len(group.micros), last=micro.last)
                self.losses.add(loss, micro.samples, last=micro.last)
            engine.apply()
        self.rates.after_step()
        state.step += 1
        state.consumed += 1

    def _loss(self, batch: Any, model: nn.Module) -> Loss:
        return self.first_step.validate(self.task, self.task.loss(model, batch))

    def _after_step(self, val: EvaluationLoader | None) -> None:
        """Do what is due after a step: log, validate, save."""
        step, training, logged = self.state.step, self.config.training, {}
        self.stopping.step_took(self.reports.step_done(self.state))
        self.watchdog.step_done(step)
        self._collect(step)
        if _due(step, training.log_every):
            logged = self.reports.log(self.state, self.engine, self.rates.used, self.manager.stall)
        self.hooks.step_done(logged)
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
        with self.reports.paused():  # before saving: a run resumed from the checkpoint would not export
            self.export(better=False)
        if _due(self.state.epoch, self.config.training.checkpoint_at):
            self._save()
        self.weights.check_trained()

    # --- Validation -------------------------------------------------------------------------------

    def _validate(self, val: EvaluationLoader | None) -> None:
        """Save, then validate the model: a stop or kill in between loses no step."""
        if val is None and self.state.consumed:
            return  # without validation, only a whole epoch's training metrics can be evaluated
        with self.reports.paused():
            self.state.validating = True
            self._save()
            self._judge(val)

    def _judge(self, val: EvaluationLoader | None) -> None:
        try:
            metrics = Metrics(self.train_data[-1]) if val is None else self.validation(val)
        except StoppedInside:
            self._stop_early()
        self.manager.record(metrics.to_record(better=self._apply_verdict(metrics, val)))

    def _apply_verdict(self, metrics: Metrics, val: EvaluationLoader | None) -> bool:
        """Apply the result of a validation, also one from before a resume; returns whether the model is the
        best.
        """
        verdict, self.search.pruned = self.context.on_main(
            lambda: (self.early_stopping(metrics), self.search.should_prune(metrics, self.epoch, self.step))
        )
        self.state.validated(**verdict._asdict())
        self.rates.after_evaluation(metrics.get("loss", float("nan")))
        if val is not None:
            self.val_data.append(dict(metrics))
            self.reports.validated(self.state, metrics)
        self.hooks.validated(metrics)
        self.export(better=verdict.better)
        return verdict.better

    # --- Beginning and end ------------------------------------------------------------------------

    def _begin(self, train: TrainingLoader, val: EvaluationLoader | None, stack: ExitStack) -> None:
        """Make the objects that live during the loop."""
        training = self.config.training
        for loader in (train, val):
            if loader is not None:
                stack.callback(loader.close)
        stack.enter_context(self.manager)
        self._epoch_is_over = train.is_over
        self._total = train.total(training)
        self.rates.lasts(self._total, train.steps)
        self.reports.begin(self.rates.resolved, self.model, train.steps)
        self.manager.keep(
            {"rates": self.rates, "early_stopping": self.early_stopping},
            {"sums": self.reports.running, "data": train},
        )
        self.stopping = stack.enter_context(Stopping(self.context, look=self.look))
        self.watchdog = stack.enter_context(Watchdog(self.context, self.config.parallel))
        self.validation = Validation(
            self.task, self.engine, self.context, self.state, self.stopping, self.watchdog
        )
        self.first_step.begin(train, val, wanted=training.check_first_step)
        self._collect = stack.enter_context(collected_together(training.collect_garbage_every))
        stack.enter_context(self.engine.wrapped())
        stack.enter_context(self.reports.opened())
        self.engine.timed = self.reports.reduction

    def _resume(self, val: EvaluationLoader | None) -> None:
        """Resume from a checkpoint, if there is one."""
        resumed = self.manager.resume()
        if resumed is not None and self.state.validating:
            if resumed.record is not None and self.task.whole_set_evaluator is None:
                self._apply_verdict(Metrics.of_record(resumed.record), val)
            else:
                self._judge(val)
        self.run_folder.write_config(self.config)
        if resumed is not None and self._over() and not self.search.pruned:
            self.run_folder.record_end(self.step, stopped=self.state.ended)

    def _over(self) -> bool:
        state, training = self.state, self.config.training
        epochs = training.num_epochs is not None and state.epoch >= training.num_epochs
        steps = training.num_steps is not None and state.step >= training.num_steps
        # If this was an epoch's last step, the epoch must still be reported.
        all_steps = steps and not self._epoch_is_over(state.consumed)
        return self.search.pruned or state.ended or epochs or all_steps

    def _finish(self, val: EvaluationLoader | None) -> None:
        if self.state.judged != self.step:
            self._validate(val)
        if self.state.judged != self.step:  # no metrics to compare: the only model is the best
            self.export(better=self.state.judged is None)
        self._save()
        self._barrier("the end of training")
        if self.context.is_main:
            self.run_folder.attempt.record_progress(self.step)
        self.stopping.record_outcome("done")

    def _save(self) -> None:
        """Save a checkpoint; rank 0 writes it in the background while training continues."""
        self.manager.save()
        self.stopping.checkpoint_took(self.manager.longest)

    def _barrier(self, where: str) -> None:
        """Wait until everything saved is on disk, and for all ranks."""
        with self.watchdog.allow(where):
            self.manager.wait()
            self.hooks.checkpoints_done()
            self.context.barrier(where)

    def _stop_early(self) -> NoReturn:
        """Save, wait for all ranks, record the outcome `resume`, and end the program."""
        self._save()
        self._barrier("the checkpoint of an early stop")
        self.stopping.record_outcome("resume")
        why = self.stopping.reason()
        level = logging.WARNING if self.context.rank == 0 else logging.INFO  # all ranks stop
        self.logger.log(level, "Stopped early at step %d (%s); it can be resumed from there", self.step, why)
        raise StoppedEarly(f"stopped early at step {self.step}: {why}")


def _due(count: int, every: int | None) -> bool:
    return every is not None and count % every == 0
