"""TrainerDDP for graphs: the core's, for configurations that describe a network on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from trainers import ddp
from trainers.core.config import Config, Evaluator, Monitor
from trainers.core.distributed import cleanup_ddp, initialize_ddp
from trainers.gnn.defaults import CRITERION, MODEL, MONITORS
from trainers.gnn.task import GraphTask
from trainers.task import Task

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP(ddp.TrainerDDP):
    """The core's trainer, with `GraphTask` for what a configuration describes without a task.

    Where causal sets are generated, what it leaves out is filled in, and stands in the run's config.yaml.
    """

    describes = GraphTask

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        described = Config.of(config)
        super().__init__(rank, described if task is not None else filled(described), task, **more)


def filled(config: Config) -> Config:
    """The configuration, with what it leaves out where it has causal sets generated.

    A network of its own is left alone, and so are its measures; else what `model` says changes the network
    here. A head that is not active is not measured.
    """
    if config.task is not None or "causets" not in config.data:
        return config
    changed: dict[str, Any] = {}
    if config.criterion is None:
        changed["criterion"] = CRITERION
    if not {"type", "encoder_type"} & config.model.keys():
        model = _over(config.model, MODEL)
        monitors = [Monitor(**each) for each in MONITORS if _is_active(model, each["kwargs"]["head"])]
        validation, testing = config.validation, config.testing
        changed["model"] = model
        changed["validation"] = replace(validation, validator=_measuring(validation.validator, monitors))
        changed["testing"] = replace(testing, tester=_measuring(testing.tester, monitors))
    return replace(config, **changed)


def _measuring(told: Evaluator | None, monitors: list[Monitor]) -> Evaluator:
    told = told or Evaluator()
    return told if told.evaluator_tasks else replace(told, evaluator_tasks=monitors)


def _is_active(model: Mapping[str, Any], head: int) -> bool:
    """As GNNModel reads it, whose keys may be text."""
    asked = model.get("active_tasks")
    asked = asked if isinstance(asked, Mapping) else {}
    return asked.get(head, asked.get(str(head), True)) is not False


def _over(told: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What is told, and the defaults of what is not."""
    both = {**defaults, **told}
    for name, value in told.items():
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping):
            both[name] = _over(value, defaults[name])
    return both
