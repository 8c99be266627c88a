"""TrainerDDP: the training loop that every rank of a job runs."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from launcher.ranks import RankEnv
from trainers.core.checkpoint import Checkpoints, load_part
from trainers.core.config import Config, ConfigError, called, plain
from trainers.core.configured import task_of
from trainers.core.data import (
    EvaluationLoader,
    Group,
    Micro,
    TrainingLoader,
    evaluation_loader,
    training_loader,
)
from trainers.core.distributed import (
    Place,
    choose_device,
    cleanup_ddp,
    device_ids,
    initialize_ddp,
    local_rank,
)
from trainers.core.evaluation import DefaultEarlyStopping, Measures, evaluate
from trainers.core.folder import RunFolder
from trainers.core.learning_rate import LearningRate
from trainers.core.optimizer import load_optimizer, make_optimizer
from trainers.core.progress import Progress
from trainers.core.randomness import MODEL, STEP, derived, seed_all
from trainers.core.running import Running
from trainers.core.sinks import Sinks
from trainers.core.stopping import StoppedEarly, Stopping
from trainers.core.throughput import Throughput, report
from trainers.core.watch import Watch
from trainers.task import Loss, Task, move

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP:
    """Trains a task's model on every rank of a process group, or alone without one.

    `config` is a `Config`, or the plain data of one; `task` wins over the one that it names. Call
    `initialize_ddp` first where there are several ranks. Every rank makes one of these, and calls
    `prepare_dataloaders` and `run_training`; `run_test` is for whichever rank wants to know.

    Raises:
        ConfigError: the configuration is wrong, or lacks what this needs.
    """

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None):
        self.config = Config.of(config)
        self.rank = rank
        self.epoch = 0
        """Epochs that are done."""
        self.step = 0
        """Optimizer steps that are done."""
        self.place = _place(rank, self.config)
        self.world_size = self.place.world_size
        self.device = self.place.device
        self.logger = logging.getLogger(f"{__name__}.{self.config.name}")
        self.task = task_of(self.config, task)
        seed = self.config.training.seed
        seed_all(derived(MODEL, seed))  # the same weights on every rank
        self.model = self.task.build_model().to(self.device)
        """The bare module."""
        self.optimizer = make_optimizer(self.config, self.task, self.model)
        self.learning_rate = LearningRate(
            self.config,
            self.optimizer,
            world_size=self.world_size,
            total_steps=self.config.training.num_steps,
            steps_per_epoch=None,
        )
        self.early_stopping = self._early_stopping()
        self.run_folder = RunFolder(self.config, self.place)
        self.folder = self.run_folder.path
        """The run's folder: checkpoints, metrics.jsonl and config.yaml."""
        self.checkpoints = Checkpoints(self.folder / "checkpoints", self.config.training.keep_checkpoints)
        self.sinks = self._sinks()
        self.train_data: list[dict[str, float]] = []
        """The training means of each epoch, over all ranks."""
        self.val_data: list[dict[str, float]] = []
        """The validation means of each epoch, over all ranks."""
        self._running = Running()
        self._throughput = Throughput(self.place, self.config.training.log_every)
        self._consumed = 0
        self._ended = False
        self._best = float("inf")

    # --- Data -------------------------------------------------------------------------------------

    def prepare_dataloaders(self) -> tuple[TrainingLoader, EvaluationLoader, EvaluationLoader]:
        """This rank's loaders of the training, validation and test set.

        Training and validation are dealt out over the ranks; a test loader has the whole set.
        """
        config = self.config
        seed_all(derived(MODEL, config.training.seed, 1))
        splits = self.task.build_data()
        self.splits = splits
        collate = self.task.collate
        train = training_loader(splits.train, config.training, self.place, collate)
        validation = evaluation_loader(
            splits.validation,
            config.validation,
            config.training,
            collate,
            rank=self.rank,
            world_size=self.world_size,
        )
        test = evaluation_loader(splits.test, config.testing, config.training, collate, rank=0, world_size=1)
        self.logger.info(
            "Training set size: %s, Validation set size: %s, Test set size: %s",
            *(f"{len(part):,}" for part in splits),
        )
        return train, validation, test

    # --- Training ---------------------------------------------------------------------------------

    def run_training(
        self, train: TrainingLoader, val: EvaluationLoader | None
    ) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Train to the end, from the newest checkpoint if this run has one.

        Returns the means of each epoch, over all ranks: of training, and of validation.

        Raises:
            StoppedEarly: somebody asked for a stop, and a checkpoint holds all that was done. As a
                SystemExit it ends the program unless it is caught.
        """
        if not isinstance(train, TrainingLoader):
            raise TypeError("run_training takes the loaders of prepare_dataloaders()")
        self._resume()
        model = self._wrapped()
        self.run_folder.write_config(self.config)
        self.logger.info("Starting distributed training on %d ranks...", self.world_size)
        try:
            self._train(model, train, val)
        except StoppedEarly as stopped:
            # What is left of DDP would end the group under Python's lock, for which gloo's threads may wait.
            traceback.clear_frames(stopped.__traceback__)
            del model
            raise
        return self.train_data, self.val_data

    def _train(self, model: nn.Module, train: TrainingLoader, val: EvaluationLoader | None) -> None:
        if self._ended or self.epoch >= (self.config.training.num_epochs or 1):
            self.run_folder.say_it_is_over(self.step, stopped=self._ended)
        self._watch = Watch(self.place, self.config.parallel, self.step)
        with Stopping(self.place) as stopping, self._watch:
            while self.epoch < (self.config.training.num_epochs or 1) and not self._ended:
                self._train_epoch(model, train, stopping)
                self._end_epoch(val, stopping)
            self.checkpoints.wait()
            if self._ended or (self.step and not self._saved_here()):
                self._save(stopping)
                self.checkpoints.wait()
            self.place.barrier("the end of training")
            stopping.say("done")

    def _train_epoch(self, model: nn.Module, train: TrainingLoader, stopping: Stopping) -> None:
        every = self.config.training.checkpoint_every_steps
        model.train()
        began = time.perf_counter()
        epochs = self.config.training.num_epochs
        total = None if train.steps is None else (epochs or 1) * train.steps
        with Progress(self.place, total=total, epochs=epochs, done=self.step, epoch=self.epoch) as progress:
            for group in self._throughput.waits(train.groups(self.epoch, self._consumed)):
                if stopping.agreed():
                    self._stop_early(stopping)
                self._train_step(model, group)
                self._watch.step_done(self.step)
                progress.step(self.step, self.epoch)
                now = time.perf_counter()
                stopping.step_took(now - began)
                began = now
                if self.step % self.config.training.log_every == 0:
                    self._report(progress)
                if every and self.step % every == 0:
                    self._save(stopping)
                    began = time.perf_counter()

    def _train_step(self, model: nn.Module, group: Group) -> None:
        seed_all(derived(STEP, self.config.training.seed, self.rank, self.step))
        self.optimizer.zero_grad(set_to_none=True)
        for micro in group.micros:
            loss = self.task.loss(model, move(micro.data, self.device))
            with self._throughput.reduction(loss.total):
                loss.total.backward(torch.full_like(loss.total, self._weight(loss, micro, group)))
            count = micro.samples if loss.count is None else loss.count
            self._running.add(loss.total, count, loss.metrics)
        if self.config.training.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.training.clip_grad_norm)
        self.learning_rate.before_step(self.step)
        self.optimizer.step()
        self.learning_rate.after_step()
        self._throughput.step(sum(micro.samples for micro in group.micros))
        self.step += 1
        self._consumed += 1

    def _weight(self, loss: Loss, micro: Micro, group: Group) -> float:
        """What makes the mean over ranks, which DDP takes, the mean over the global batch's items."""
        assert group.samples is not None
        count = micro.samples if loss.count is None else float(loss.count)
        if loss.count is not None and getattr(self.task, "counts_vary", False):
            total = float(self.place.sum(torch.tensor([count])).item())
        else:
            total = count / micro.samples * group.samples
        return self.world_size / total

    def _report(self, progress: Progress) -> None:
        values = report(self._running, self._throughput, self.place)
        rate = self.optimizer.param_groups[0]["lr"]
        values["train/lr"] = rate
        self.logger.info("%s", progress.line(values))
        if self.sinks is not None:
            self.sinks.write(self.step, {"epoch": self.epoch, "lr": rate, **values})

    def _end_epoch(self, val: EvaluationLoader | None, stopping: Stopping) -> None:
        """Validate, decide whether to go on, and save; all ranks alike."""
        if stopping.longest_validation and stopping.agreed_on(stopping.longest_validation):
            self._stop_early(stopping)
        means = self._running.end_epoch(self.place)
        self.train_data.append(means)
        measures = None
        if val is not None and len(val.dataset):
            began = time.perf_counter()
            with self._throughput.paused(), self._watch.allow("in validation"):
                measures = evaluate(self.task, self.model, val, self.place)
            stopping.longest_validation = max(stopping.longest_validation, time.perf_counter() - began)
            self.val_data.append(dict(measures))
            self.logger.info(
                "Validation: loss=%.3f ± %.3f", measures.get("loss", float("nan")), measures.spread
            )
        better, self._ended = self._judge(measures or means)
        self.learning_rate.after_evaluation((measures or means)["loss"])
        self.learning_rate.after_epoch()
        if self.sinks is not None:
            named = {f"val/{name}": value for name, value in (measures or {}).items()}
            epoch = {f"train_epoch/{name}": value for name, value in means.items()}
            self.sinks.write(self.step, {"epoch": self.epoch, **epoch, **named})
        self.epoch += 1
        self._consumed = 0
        every = self.config.training.checkpoint_at
        if better or (every and self.epoch % every == 0):
            self._save(stopping, best=better)

    def _judge(self, measures: Mapping[str, float]) -> tuple[bool, bool]:
        """(this is the best model so far, it is time to stop): decided by rank 0 for all."""
        verdict = (False, False)
        if self.place.is_main:
            if self.early_stopping is not None:
                stop = self.early_stopping(measures)
                verdict = (self.early_stopping.found_better_model, stop)
            else:
                verdict = (measures["loss"] < self._best, False)
                self._best = min(self._best, measures["loss"])
        told = self.place.from_main(verdict)
        assert isinstance(told, tuple)
        better, ended = told
        return bool(better), bool(ended)

    def _stop_early(self, stopping: Stopping) -> None:
        """Save, meet once more, say `again`, and end the program."""
        self._save(stopping)
        self.checkpoints.wait()
        self.place.barrier("the checkpoint of an early stop")
        why = stopping.asked() or "another rank"
        stopping.say("again")
        self.logger.warning("Stopped early at step %d (%s); it can go on from there", self.step, why)
        raise StoppedEarly(f"stopped early at step {self.step}: {why}")

    # --- Testing ----------------------------------------------------------------------------------

    def run_test(self, test: EvaluationLoader) -> Measures:
        """The test set's means with the best model that was saved, else with this one.

        For one rank alone or for all: each that calls it judges the whole set, and waits for none.
        """
        best = self.checkpoints.best()
        if best is not None:
            self.model.load_state_dict(load_part(best, "model"))
        alone = Place(0, 1, self.device, alone=True)
        measures = evaluate(self.task, self.model, test, alone)
        self.logger.info("Test: %s", ", ".join(f"{name}={value:.4g}" for name, value in measures.items()))
        if self.sinks is not None:
            named = {f"test/{name}": value for name, value in measures.items()}
            self.sinks.write(self.step, {"epoch": self.epoch, **named})
        return measures

    # --- Checkpoints ------------------------------------------------------------------------------

    def save_checkpoint(self, *, best: bool = False) -> Path:
        """Save where training stands, durably. All ranks must call it; rank 0 writes.

        Raises:
            OSError: on rank 0, if it cannot be written.
        """
        self._begin_to_save(best=best)
        self.checkpoints.wait()
        return self.checkpoints.folder / f"step-{self.step:010d}"

    def _begin_to_save(self, *, best: bool) -> None:
        running = self._running.state(self.place)
        if self.place.is_main:
            self.logger.info("Saving checkpoint for model at epoch %d", self.epoch)
            training = {
                "epoch": self.epoch,
                "step": self.step,
                "samples": self._consumed * self.config.training.batch_size * self.world_size,
                "seed": self.config.training.seed,
                "ended": self._ended,
                "best": self._best,
                "optimizer": self.optimizer.state_dict(),
                "learning_rate": self.learning_rate.state_dict(),
                "early_stopping": self.early_stopping.state_dict() if self.early_stopping else None,
                "running": running,
                "metrics": self.sinks.position() if self.sinks is not None else 0,
                "train_data": self.train_data,
                "val_data": self.val_data,
            }
            self.checkpoints.save(self.step, {"model": self.model.state_dict(), "training": training})
            if best:
                self.checkpoints.record(self.step, {"better": True})

    def load_checkpoint(self, path: str | Path) -> None:
        """Go on from a checkpoint: the folder of one step. Every rank must call it.

        Raises:
            CheckpointError, OSError: it cannot be read.
            ConfigError: it was made with another seed, or with global batches that do not fit.
        """
        path = Path(path)
        self.model.load_state_dict(load_part(path, "model"))
        state = load_part(path, "training")
        training = self.config.training
        problems = []
        if state["seed"] != training.seed:
            problems.append(f"training.seed: is {training.seed}, but {path} was made with {state['seed']}")
        consumed, rest = divmod(state["samples"], training.batch_size * self.world_size)
        if rest:
            problems.append(
                f"training.batch_size: {training.batch_size} x {self.world_size} ranks does not divide the "
                f"{state['samples']} samples of the epoch that {path} has seen; keep the global batch"
            )
        if problems:
            raise ConfigError(problems)
        self.epoch, self.step, self._consumed = state["epoch"], state["step"], consumed
        self._ended, self._best = state["ended"], state["best"]
        for line in load_optimizer(self.optimizer, state["optimizer"]):
            self.logger.info(line)
        self.learning_rate.load_state_dict(state["learning_rate"])
        if self.early_stopping is not None and state["early_stopping"] is not None:
            self.early_stopping.load_state_dict(state["early_stopping"])
        self._running.load(state["running"], self.place)
        self.train_data, self.val_data = state["train_data"], state["val_data"]
        if self.sinks is not None:
            self.sinks.go_back(state["metrics"], self.step)

    def _save(self, stopping: Stopping, *, best: bool = False) -> None:
        began = time.perf_counter()
        with self._throughput.paused():
            self._begin_to_save(best=best)
        stopping.checkpoint_took(time.perf_counter() - began + self.checkpoints.longest)

    def _saved_here(self) -> bool:
        newest = self.checkpoints.all()[-1:] if self.place.is_main else []
        told = self.place.from_main(bool(newest) and newest[0].name == f"step-{self.step:010d}")
        return bool(told)

    def _resume(self) -> None:
        """Load the run's newest checkpoint, if it has one and nothing was loaded by hand."""
        if self.step:
            return
        newest = self.checkpoints.newest() if self.place.is_main else None
        path = self.place.from_main(None if newest is None else str(newest))
        if path is None:
            if self.sinks is not None:
                self.sinks.go_back(0, 0)
            return
        self.load_checkpoint(str(path))
        self.logger.info("Going on from %s: epoch %d, step %d", path, self.epoch, self.step)

    # --- What the configuration makes -------------------------------------------------------------

    def _wrapped(self) -> nn.Module:
        """The module that training calls: moved first, then wrapped."""
        if not self.place.distributed:
            return self.model
        parallel = self.config.parallel
        ids = device_ids(self.device)
        return DistributedDataParallel(
            self.model,
            device_ids=ids,
            output_device=parallel.output_device if ids else None,
            find_unused_parameters=parallel.find_unused_parameters,
            gradient_as_bucket_view=parallel.gradient_as_bucket_view,
            static_graph=parallel.static_graph,
            bucket_cap_mb=parallel.bucket_cap_mb,
        )

    def _early_stopping(self) -> Any:
        asked = self.config.early_stopping
        if asked is None:
            return None
        make = DefaultEarlyStopping
        if asked.type != "DefaultEarlyStopping":
            make = called(
                asked.type, "early_stopping.type", "DefaultEarlyStopping or !pyobject my_module.Mine"
            )
        try:
            return make(*asked.args, **asked.kwargs)
        except (TypeError, ValueError) as error:
            raise ConfigError([f"early_stopping: {error}"]) from error

    def _sinks(self) -> Sinks | None:
        if not self.place.is_main:
            return None
        training, size = self.config.training, self.world_size
        batch = training.batch_size * training.gradient_accumulation_steps * size
        resolved = {
            **plain(self.config),
            "ddp/world_size": size,
            "ddp/effective_batch_size": batch,
            "ddp/scaled_lr": self.optimizer.param_groups[0]["lr"],
        }
        return Sinks(self.folder, self.config.logging, self.folder.name, resolved)


def _place(rank: int, config: Config) -> Place:
    joined = dist.is_available() and dist.is_initialized()
    size = dist.get_world_size() if joined else 1
    problems = []
    declared = config.parallel.world_size
    if declared not in (None, size):
        meant = f"{size} ranks have met" if joined else "this process has joined no group"
        problems.append(
            f"parallel.world_size: is {declared}, but {meant}; call initialize_ddp() on {declared} ranks, or "
            "leave it out: the starter knows it"
        )
    if joined and rank != dist.get_rank():
        problems.append(f"rank: is {rank}, but this process is rank {dist.get_rank()} of its group")
    if problems:
        raise ConfigError(problems)
    me = RankEnv.detect()
    mine = (me.rank, me.world_size) == (rank, size)
    device = choose_device(config.training.device, local_rank(me, rank, size), me.device if mine else None)
    return Place(rank, size, device)
