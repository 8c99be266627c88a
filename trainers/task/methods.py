"""Checks a task's methods at the start: the arguments of those called late, and misspelt names."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Iterator

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.task import Task

logger = logging.getLogger(__name__)

_LATE = ("on_step", "on_validation", "on_checkpoint", "after_evaluation", "export", "load_state_dict")
"""Methods that may be called only after hours."""

_NEAR, _NEAR_FOR_HOOKS = 0.85, 0.75
"""How similar a name must be to count as misspelt; names with `on_` are hardly meant for anything else."""


def check_methods(task: Task, *, warn: bool) -> None:
    """Check a task's methods; `warn`: also of names that are probably misspelt.

    Raises:
        ConfigError: a method cannot be called with the arguments that it will get.
    """
    problems = [problem for name in _LATE if (problem := _wrong_signature(task, name))]
    if problems:
        raise ConfigError(problems)
    if warn:
        kind = type(task).__qualname__
        for name, meant in _misspelt(type(task)):
            logger.warning(
                "%s.%s is not a method of Task, so the trainer does not call it; did you mean %s? "
                "Ignore this if your own code calls it",
                kind,
                name,
                meant,
            )


def _wrong_signature(task: Task, name: str) -> str | None:
    wanted = inspect.signature(getattr(Task, name))
    _, *parameters = wanted.parameters.values()
    by_name = {each.name: None for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        found = inspect.signature(getattr(task, name))
    except (TypeError, ValueError):  # unknown, as of some functions in C
        return None
    try:
        found.bind(*[None] * (len(parameters) - len(by_name)), **by_name)
    except TypeError as error:
        plain = [each.replace(annotation=inspect.Parameter.empty) for each in wanted.parameters.values()]
        right = inspect.Signature(plain)
        return f"task: {type(task).__qualname__}.{name} takes other arguments ({error}); write {name}{right}"
    return None


def _misspelt(kind: type[Task]) -> Iterator[tuple[str, str]]:
    """Public methods of a user's classes, each with the method of Task, not overridden, that it resembles."""
    free = [
        name
        for name, value in vars(Task).items()
        if inspect.isfunction(value) and not name.startswith("_") and getattr(kind, name) is value
    ]
    for owner in kind.__mro__:
        if not issubclass(owner, Task) or owner.__module__.startswith("castoff."):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or not inspect.isroutine(value) or hasattr(Task, name):
                continue
            cutoff = _NEAR_FOR_HOOKS if name.startswith("on_") else _NEAR
            for meant in difflib.get_close_matches(name, free, n=1, cutoff=cutoff):
                yield name, meant
