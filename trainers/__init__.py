"""The training core that runs inside a job.

What a program of one's own needs can be imported from here; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import castoff_plugin

castoff_plugin.own("launcher")  # which we import from, and a file of that name may lie beside the program

if TYPE_CHECKING:
    from trainers.core.config import Config
    from trainers.core.distributed import cleanup_ddp, initialize_ddp
    from trainers.core.fields import ConfigError
    from trainers.core.sampling import split
    from trainers.core.sweep import members
    from trainers.core.tuning import suggested
    from trainers.core.yaml_text import get_loader
    from trainers.ddp import TrainerDDP
    from trainers.program import train
    from trainers.task import Evaluated, Loss, Splits, Task

_HOMES = {
    "Config": "trainers.core.config",
    "ConfigError": "trainers.core.fields",
    "Evaluated": "trainers.task",
    "Loss": "trainers.task",
    "Splits": "trainers.task",
    "Task": "trainers.task",
    "TrainerDDP": "trainers.ddp",
    "cleanup_ddp": "trainers.core.distributed",
    "get_loader": "trainers.core.yaml_text",
    "initialize_ddp": "trainers.core.distributed",
    "members": "trainers.core.sweep",
    "split": "trainers.core.sampling",
    "suggested": "trainers.core.tuning",
    "train": "trainers.program",
}

__all__ = [
    "Config",
    "ConfigError",
    "Evaluated",
    "Loss",
    "Splits",
    "Task",
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
