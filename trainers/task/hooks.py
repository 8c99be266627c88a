"""Calls a task's hooks: `on_step`, `on_validation` and `on_checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from castoff.trainers.configuration.fields import UserError
from castoff.trainers.distributed.explanations import brief
from castoff.trainers.task import Task
from castoff.trainers.task.training_state import TrainingState

Checked: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""A context for a method of the task, by its name, that warns of changed state that no checkpoint keeps."""


class HookError(RuntimeError):
    """A hook failed; the text names the task's class and method, and the step."""


class Hooks:
    """A task's hooks; those that it does not override cost nothing.

    `durable`: the folders of checkpoints that have become durable since the last call; `checked`: a context
    for the first calls of a hook.
    """

    def __init__(
        self, task: Task, state: TrainingState, durable: Callable[[], Iterable[Path]], checked: Checked
    ):
        self._task = task
        self._state = state
        self._durable = durable
        self._checked = checked
        overrides = {name for name in HOOKS if getattr(type(task), name) is not getattr(Task, name)}
        self._overrides = overrides
        self._unseen = {(name, measured) for name in overrides for measured in (False, True)}

    def step_done(self, metrics: Mapping[str, float]) -> None:
        """Call `on_step`, and `on_checkpoint` for checkpoints that have become durable.

        `metrics` is what was logged for this step; empty if nothing was.
        """
        if "on_step" in self._overrides:
            self._call("on_step", self._state, metrics, measured=bool(metrics))
        self.checkpoints_done()

    def validated(self, metrics: Mapping[str, float]) -> None:
        """Call `on_validation`."""
        if "on_validation" in self._overrides:
            self._call("on_validation", self._state, dict(metrics))

    def checkpoints_done(self) -> None:
        """Call `on_checkpoint` on rank 0 for each checkpoint that has become durable since the last call."""
        if "on_checkpoint" in self._overrides:
            for path in self._durable():
                self._call("on_checkpoint", self._state, path)

    def _call(self, name: str, *arguments: Any, measured: bool = True) -> None:
        is_new = (name, measured) in self._unseen
        self._unseen.discard((name, measured))
        where = f"{type(self._task).__qualname__}.{name}"
        try:
            with self._checked(where) if is_new and name != "on_checkpoint" else nullcontext():
                getattr(self._task, name)(*arguments)
        except UserError:
            raise
        except Exception as error:
            raise HookError(f"{where} failed at step {self._state.step}: {brief(error)}") from error


HOOKS = ("on_step", "on_validation", "on_checkpoint")
"""The methods of a task that the trainer calls for their effects alone."""
