"""The variables that each scheduler's folder names; loads no scheduler."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import castoff.launcher.schedulers as folder


@cache
def _packages() -> list[ModuleType]:
    """The folders of the schedulers that have directives; each holds a few constants."""
    names = (one.name for one in iter_modules(folder.__path__) if one.ispkg)
    packages = (import_module(f"{folder.__name__}.{name}") for name in names)
    return [one for one in packages if hasattr(one, "JOB_VARIABLES")]


def job_variables() -> tuple[str, ...]:
    """The variables of which any shows that a shell is in an allocation."""
    return tuple(name for one in _packages() for name in one.JOB_VARIABLES)


def job_prefixes() -> tuple[str, ...]:
    """How the names of the variables begin that schedulers set in jobs: `SLURM`."""
    return tuple(one.JOB_VARIABLES[0].partition("_")[0] for one in _packages())


def foreign_prefixes(scheduler: str) -> tuple[str, ...]:
    """How the names of the variables begin that other schedulers than this one set in jobs."""
    named = zip(_packages(), job_prefixes(), strict=True)
    return tuple(prefix for one, prefix in named if not one.__name__.endswith(f".{scheduler}"))


def command_prefixes() -> tuple[str, ...]:
    """How the names of the variables begin that schedulers' commands obey."""
    return tuple(prefix for one in _packages() for prefix in one.COMMAND_VARIABLES)


def machine_variables() -> tuple[str, ...]:
    """The variables with such names that the site sets."""
    return tuple(name for one in _packages() for name in one.MACHINE_VARIABLES)
