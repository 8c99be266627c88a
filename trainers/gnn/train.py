"""The trainer that QuantumGrav's scripts use in one process; its results are pandas tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from msgspec.structs import asdict, replace

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.defaults import with_defaults
from castoff.trainers.gnn.evaluate import Evaluator, Tester, Validator
from castoff.trainers.gnn.train_ddp import QuantumGravTrainer
from castoff.trainers.task import Task
from castoff.trainers.task.configured_task import is_custom


class Trainer(QuantumGravTrainer):
    """`TrainerDDP` for one process: a `Validator` and a `Tester` evaluate, and their tables are the results.

    Raises:
        ConfigError: there are several ranks, which need `TrainerDDP`.
    """

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if ranks > 1:
            raise ConfigError([f"Trainer: is for one process, not for {ranks}; use TrainerDDP"])
        if task is None:
            config = with_tables(with_defaults(Config.of(config)))
        super().__init__(rank, config, task, **more)

    def run_training(self, train_loader: Any, val_loader: Any, trial: Any = None) -> Any:
        """Train to the end; return tables of the epochs' means and of the validator."""
        import pandas

        trained, validated = super().run_training(train_loader, val_loader, trial)
        kept = getattr(self.validator, "data", None)
        return pandas.DataFrame(trained), pandas.DataFrame(validated) if kept is None else kept

    def run_test(self, test_loader: Any) -> Any:
        """Test the best model; return the tester's table."""
        import pandas

        metrics = super().run_test(test_loader)
        kept = getattr(self.tester, "data", None)
        return pandas.DataFrame([metrics]) if kept is None else kept


def with_tables(config: Config) -> Config:
    """The configuration with evaluators that keep tables, unless it names custom ones."""
    validation, testing = config.validation, config.testing
    validator = _keeping(validation.validator, Validator, config)
    tester = _keeping(testing.tester, Tester, config)
    return replace(
        config,
        validation=replace(validation, validator=validator),
        testing=replace(testing, tester=tester),
    )


def _keeping(evaluator: core.Evaluator | None, kind: type[Evaluator], config: Config) -> core.Evaluator:
    evaluator = evaluator or core.Evaluator()
    if is_custom(evaluator):
        return evaluator
    arguments = {
        "device": None,
        "criterion": config.criterion if evaluator.criterion is None else evaluator.criterion,
        "evaluator_tasks": [asdict(task) for task in evaluator.evaluator_tasks],
        "apply_model": config.apply_model if evaluator.apply_model is None else evaluator.apply_model,
    }
    return core.Evaluator(type=kind, kwargs=arguments)
