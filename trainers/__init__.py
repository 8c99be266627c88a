"""The training core that runs inside a job.

Import everything that a custom program needs from this package; each name is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from castoff.trainers.checkpointing.checkpoints import load_part
    from castoff.trainers.checkpointing.errors import CheckpointError
    from castoff.trainers.checkpointing.safetensors_file import export_safetensors
    from castoff.trainers.configuration.config import Config
    from castoff.trainers.configuration.fields import ConfigError
    from castoff.trainers.configuration.sweep import members
    from castoff.trainers.configuration.yaml_text import get_loader
    from castoff.trainers.ddp import TrainerDDP
    from castoff.trainers.distributed.errors import DistributedError
    from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
    from castoff.trainers.distributed.requests import StoppedEarly
    from castoff.trainers.evaluation.tuning import suggested
    from castoff.trainers.optimization.engine import NonFiniteError
    from castoff.trainers.program.training import Trained, train
    from castoff.trainers.task import Evaluated, Loss, Splits, Task
    from castoff.trainers.task.splitting import split

_HOMES = {
    "CheckpointError": "castoff.trainers.checkpointing.errors",
    "Config": "castoff.trainers.configuration.config",
    "ConfigError": "castoff.trainers.configuration.fields",
    "DistributedError": "castoff.trainers.distributed.errors",
    "Evaluated": "castoff.trainers.task",
    "Loss": "castoff.trainers.task",
    "NonFiniteError": "castoff.trainers.optimization.engine",
    "Splits": "castoff.trainers.task",
    "StoppedEarly": "castoff.trainers.distributed.requests",
    "Task": "castoff.trainers.task",
    "Trained": "castoff.trainers.program.training",
    "TrainerDDP": "castoff.trainers.ddp",
    "cleanup_ddp": "castoff.trainers.distributed.process_group",
    "export_safetensors": "castoff.trainers.checkpointing.safetensors_file",
    "get_loader": "castoff.trainers.configuration.yaml_text",
    "initialize_ddp": "castoff.trainers.distributed.process_group",
    "load_part": "castoff.trainers.checkpointing.checkpoints",
    "members": "castoff.trainers.configuration.sweep",
    "split": "castoff.trainers.task.splitting",
    "suggested": "castoff.trainers.evaluation.tuning",
    "train": "castoff.trainers.program.training",
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
    "export_safetensors",
    "get_loader",
    "initialize_ddp",
    "load_part",
    "members",
    "split",
    "suggested",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a name's module at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The package's names, including those not loaded yet."""
    return sorted({*globals(), *__all__})
