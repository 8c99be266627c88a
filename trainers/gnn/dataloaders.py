"""Loaders without a trainer, as in QuantumGrav's scripts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.data.loaders import EvaluationLoader, TrainingLoader, loaders
from castoff.trainers.data.same_data import agree_on_sizes
from castoff.trainers.distributed.process_group import context_of
from castoff.trainers.distributed.randomness import MODEL, derived, seed_all
from castoff.trainers.gnn.graphs.splits import prepared
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.task import Splits
from castoff.trainers.task.configured_task import judges_alone
from castoff.trainers.task.contract import construct
from castoff.trainers.task.splitting import split as split_in_parts

Kind = TypeVar("Kind", bound="DataLoaderFactory")

DEFAULT_SPLIT = (0.8, 0.1, 0.1)


class DataLoaderFactory:
    """Makes the data sets and loaders of a configuration, on this rank.

    `rank`: None means that of the process group, or 0 without one.

    Raises:
        ConfigError: the configuration is wrong.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | Config,
        logger: logging.Logger | None = None,
        rank: int | None = None,
    ):
        self.config = Config.of(config)
        self.logger = logger or logging.getLogger(__name__)
        self.rank = joined_rank() if rank is None else rank
        self.context = context_of(self.rank, self.config)

    @classmethod
    def from_config(cls: type[Kind], config: Mapping[str, Any] | Config) -> Kind:
        """Make the factory of a configuration."""
        return cls(config)

    def prepare_dataset(
        self,
        dataset: Any = None,
        split: Sequence[float] | None = None,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
    ) -> Splits:
        """The three data sets: those given, parts of the one given, or those of the section `data`.

        All ranks must call it.

        Raises:
            ConfigError: `dataset` and others are given, or some of the three are missing.
        """
        three = (train_dataset, val_dataset, test_dataset)
        passed = [value for value in three if value is not None]
        if passed and (dataset is not None or len(passed) < len(three)):
            raise ConfigError(
                [
                    "prepare_dataset: takes train_dataset, val_dataset and test_dataset, or dataset, "
                    "which it splits; pass the three, or only dataset"
                ]
            )
        if passed:
            return Splits(*three)
        training, data = self.config.training, self.config.data
        seed_all(derived(MODEL, training.seed, 1))
        if dataset is None and "dataset" not in data:
            folder = expanded(training.path, "training.path").absolute()
            return prepared(data, training.seed, self.context, beside=folder)
        fractions = list(data.get("split") or split or DEFAULT_SPLIT)
        if dataset is None:
            arguments = {
                name: value for name, value in resolved(dict(data), "data").items() if name != "split"
            }
            dataset = construct(arguments.pop("dataset"), arguments, "data", "data.dataset")
        return Splits(*split_in_parts(dataset, fractions, training.seed))

    def prepare_dataloaders(
        self,
        dataset: Any = None,
        split: Sequence[float] | None = None,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
        training_sampler: Any = None,
    ) -> tuple[TrainingLoader, EvaluationLoader, EvaluationLoader]:
        """Loaders for a trainer's `run_training` and `run_test`, of the data sets from `prepare_dataset`.

        All ranks must call it.

        Raises:
            ConfigError: there is a sampler, but the trainer decides which samples come when.
        """
        if training_sampler is not None:
            kind = f"a {type(training_sampler).__name__}"
            raise ConfigError(
                [
                    f"training_sampler: is {kind}, but the trainer decides the order of samples, so that "
                    "a run can resume anywhere; weight the samples in the criterion, or pass a "
                    "train_dataset that repeats some of them"
                ]
            )
        splits = self.prepare_dataset(dataset, split, train_dataset, val_dataset, test_dataset)
        agree_on_sizes(splits, self.context)
        if self.context.is_main:
            message = "Training set size: %d, validation: %d, test: %d"
            self.logger.info(message, *map(len, splits))
        whole = judges_alone(self.config)
        return loaders(splits, self.config, self.context, GraphTask.collate, whole=whole)


class DistributedDataLoaderFactory(DataLoaderFactory):
    """QuantumGrav's name for the factory with several ranks, which share the data."""


def joined_rank() -> int:
    """This process's rank in its group; 0 without one."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
