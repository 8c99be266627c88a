"""The training core that runs inside a job.

Everything that a custom program needs can be imported from here; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import castoff_plugin

castoff_plugin.own("launcher")  # which we import from, and a file of that name may lie beside the program

if TYPE_CHECKING:
    from trainers.checkpointing.errors import CheckpointError
    from trainers.configuration.config import Config
    from trainers.configuration.fields import ConfigError
    from trainers.configuration.sweep import members
    from trainers.configuration.yaml_text import get_loader
    from trainers.ddp import TrainerDDP
    from trainers.distributed.errors import DistributedError
    from trainers.distributed.process_group import cleanup_ddp, initialize_ddp
    from trainers.distributed.stopping import StoppedEarly
    from trainers.evaluation.tuning import suggested
    from trainers.optimization.engine import NonFiniteError
    from trainers.program.training import Trained, train
    from trainers.task import Evaluated, Loss, Splits, Task
    from trainers.task.splitting import split

_HOMES = {
    "CheckpointError": "trainers.checkpointing.errors",
    "Config": "trainers.configuration.config",
    "ConfigError": "trainers.configuration.fields",
    "DistributedError": "trainers.distributed.errors",
    "Evaluated": "trainers.task",
    "Loss": "trainers.task",
    "NonFiniteError": "trainers.optimization.engine",
    "Splits": "trainers.task",
    "StoppedEarly": "trainers.distributed.stopping",
    "Task": "trainers.task",
    "Trained": "trainers.program.training",
    "TrainerDDP": "trainers.ddp",
    "cleanup_ddp": "trainers.distributed.process_group",
    "get_loader": "trainers.configuration.yaml_text",
    "initialize_ddp": "trainers.distributed.process_group",
    "members": "trainers.configuration.sweep",
    "split": "trainers.task.splitting",
    "suggested": "trainers.evaluation.tuning",
    "train": "trainers.program.training",
}

__all__ = [
    "CheckpointError",
    "Config",
    "ConfigError",
    "DistributedError",
    "Evaluated",
    "Loss",
    "NonFiniteError",
    "Splits",
    "StoppedEarly",
    "Task",
    "Trained",
    "TrainerDDP",
    "cleanup_ddp",
    "get_loader",
    "initialize_ddp",
    "members",
    "split",
    "suggested",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a name's module when it is asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The names that are loaded late are offered, too."""
    return sorted({*globals(), *__all__})
