"""Makes a trainer's parts, in the same order on every rank."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import nn

from castoff.trainers.checkpointing.manager import CheckpointManager
from castoff.trainers.checkpointing.run_folder import RunFolder
from castoff.trainers.checks.first_step import FirstStep
from castoff.trainers.checks.same_configuration import agree_on_configuration
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.data.batches import TrainingLoader
from castoff.trainers.data.loaders import EvaluationLoader, loaders, must_be
from castoff.trainers.data.probing import probed
from castoff.trainers.data.same_data import agree_on_sizes
from castoff.trainers.data.whole_streams import held
from castoff.trainers.distributed.process_group import RankContext, context_of
from castoff.trainers.distributed.randomness import MODEL, derived, seed_all
from castoff.trainers.distributed.watchdog import Watchdog
from castoff.trainers.evaluation.early_stopping import EarlyStopping
from castoff.trainers.evaluation.metrics import Metrics, evaluating
from castoff.trainers.evaluation.tuning import Search
from castoff.trainers.evaluation.validation import tested
from castoff.trainers.optimization.freezing import warn_of_the_end
from castoff.trainers.optimization.learning_rate import LearningRate
from castoff.trainers.optimization.strategy import strategy_of
from castoff.trainers.optimization.turns import make_engine
from castoff.trainers.optimization.weights import Weights
from castoff.trainers.optimization.wrapping import has_batchnorm, prepared_model
from castoff.trainers.reporting.reports import Reports
from castoff.trainers.reporting.sinks import check_packages
from castoff.trainers.task import Task
from castoff.trainers.task.configured_task import ConfiguredTask, task_of
from castoff.trainers.task.contract import declared_generators, validate_data
from castoff.trainers.task.hooks import Hooks
from castoff.trainers.task.methods import check_methods
from castoff.trainers.task.training_state import TrainingState
from castoff.trainers.task.turns import Losses


class Assembly:
    """A trainer's parts, and its methods other than the training loop.

    Every rank makes one, with the same arguments except `rank`; ranks communicate while some parts are made.
    """

    describes: Callable[[Config], Task] = ConfiguredTask
    """Makes the task from the configuration if its field `task` is not set."""

    search: Search
    """Reports to the Optuna study of this training, during the loop."""
    watchdog: Watchdog
    """Ends a rank that waits in vain, during the loop."""

    def __init__(
        self,
        rank: int,
        config: Mapping[str, Any] | Config,
        task: Task | None = None,
        *,
        reports: Callable[[Path, Config, RankContext], Reports] = Reports,
    ):
        self.config = config = Config.of(config)
        self.rank = rank
        self.logger = logging.getLogger(f"castoff.trainers.{config.name}")
        self.context = context = context_of(rank, config)
        if context.is_main:
            self.logger.info("Using device: %s", context.device)
        seed = config.training.seed
        seed_all(derived(MODEL, seed, 2))
        self.task = task_of(config, task, type(self).describes)
        check_methods(self.task, warn=context.is_main)
        runs = expanded(config.training.path, "training.path").absolute()
        generators = declared_generators(self.task, "task")
        self.state = TrainingState(seed, rank, context.device, generators, config.training.precision, runs)
        agree_on_configuration(config, self.task, context)
        self.task.state = self.state
        if isinstance(self.task, ConfiguredTask):
            self.task.trainer = self
        self.task.setup(context)
        seed_all(derived(MODEL, seed))  # the same weights on every rank
        strategy = strategy_of(prepared_model(self.task, config, context), config, context)
        self.engine = make_engine(strategy, self.task, config, context)
        self.rates = LearningRate(config, self.engine.optimizer, world_size=context.world_size)
        self.early_stopping = EarlyStopping(config)
        self.weights = Weights(self.task, self.engine, self.state, config, context)
        self.first_step = FirstStep(
            task=self.task,
            engine=self.engine,
            state=self.state,
            context=context,
            weights=self.weights,
            early_stopping=self.early_stopping,
        )
        context.on_main(lambda: check_packages(config.logging))
        # Made after all checks, since `training.fresh` renames an earlier run's folder.
        self.run_folder = RunFolder(config, context)
        self.folder = self.run_folder.path
        """The run's folder: checkpoints, metrics.jsonl and config.yaml."""
        self.reports = reports(self.folder, config, context)
        self.losses = Losses(self.task, self.reports.add)
        self.reports.follow(self.engine, self.task)
        self.manager = CheckpointManager(
            config=config,
            given=task,
            task=self.task,
            context=context,
            state=self.state,
            engine=self.engine,
            weights=self.weights,
            log=self.reports,
            run_folder=self.run_folder,
        )
        self.checkpoints = self.manager.checkpoints
        self.hooks = Hooks(self.task, self.state, self.manager.newly_durable, self.first_step.of_hook)

    @property
    def model(self) -> nn.Module:
        """The bare module: after `run_training` with the last weights, after `take_best` with the best."""
        return self.engine.bare

    @property
    def train_data(self) -> list[dict[str, float]]:
        """The training means of each epoch, over all ranks."""
        return self.state.train_data

    @property
    def val_data(self) -> list[dict[str, float]]:
        """The metrics of each validation, over all ranks."""
        return self.state.val_data

    @property
    def epoch(self) -> int:
        """Completed epochs."""
        return self.state.epoch

    @property
    def step(self) -> int:
        """Completed optimizer steps."""
        return self.state.step

    def prepare_dataloaders(self) -> tuple[TrainingLoader, EvaluationLoader, EvaluationLoader]:
        """This rank's loaders of the training, validation and test sets.

        Training and validation sets are sharded over the ranks. A test loader has the whole set, and so has
        the validation loader of a `whole_set_evaluator`.
        """
        seed_all(derived(MODEL, self.config.training.seed, 1))
        built = validate_data(self.task, self.task.build_data())
        self.splits = splits = held(built, self.config.training.seed, self.context)
        agree_on_sizes(splits, self.context)
        probes = probed(splits, self.config, self.context, self.task.collate)
        self.first_step.evaluates(probes.first)
        self.reports.sizes(splits)
        whole = self.task.whole_set_evaluator is not None
        train, val, test = loaders(
            splits,
            self.config,
            self.context,
            self.task.collate,
            whole=whole,
            least=2 if has_batchnorm(self.model) else 1,
        )
        train.pair = probes.pair
        if self.context.is_main:
            warn_of_the_end(self.config, train.total(self.config.training))
        return train, val, test

    def look(self) -> None:
        """Check, at most once a second on rank 0, that the attempt is not over, and record the progress."""
        self.run_folder.check()
        self.run_folder.attempt.record_progress(self.step)

    def export(self, *, better: bool) -> None:
        """Call the task's `export` on rank 0; all ranks must call it.

        `better`: whether this is the best model so far.
        """

        def export() -> None:
            with torch.no_grad(), evaluating(self.engine.judged) as judged:
                self.task.export(judged, self.folder, better=better)

        with self.watchdog.allow("after a validation"), self.engine.gathered():
            self.context.on_main(export)

    def run_test(self, test: EvaluationLoader) -> Metrics:
        """Evaluate the best saved model, or the current one if none was saved, on the test set.

        Any rank may call it: it evaluates the whole set and waits for no other rank.

        Raises:
            CheckpointError: the best checkpoint is damaged.
            TypeError: the loader is not one of this trainer's.
        """
        must_be(EvaluationLoader, test, "test")
        self.manager.best.load()
        if self.engine.strategy.sharded:
            raise RuntimeError(
                "the weights are sharded over the ranks, and no checkpoint has them all; call run_test after "
                "run_training"
            )
        with closing(test):
            metrics = tested(self.task, self.engine, test, self.state)
        self.reports.tested(self.state, metrics)
        return metrics

    def take_best(self) -> None:
        """Load the best saved weights, if there are any; all ranks must call it.

        Raises:
            CheckpointError: the best checkpoint is damaged; raised on all ranks.
        """
        self.manager.best.take()

    def save_checkpoint(self) -> Path:
        """Save a checkpoint durably. All ranks must call it, after training has begun."""
        self.manager.save()
        self.manager.wait()
        self.context.barrier("a checkpoint")
        return self.checkpoints.path(self.step)

    def load_checkpoint(self, path: str | Path) -> None:
        """Load only a checkpoint's weights and averaged weights; `run_training` resumes by itself.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        self.manager.load_weights(Path(path))
