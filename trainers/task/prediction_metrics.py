"""Metrics that need all predictions at once, such as F1, and their errors."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.fields import ConfigError, gathered
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.distributed.private_torch import tree_map_only
from castoff.trainers.task.contract import construct, in_words

Find: TypeAlias = Callable[[Any, str, str], Any]
"""Returns the class or function that a field names, from (value, field, kind)."""

_WRITE = "return a number, or several in a list, a tensor or a dict"


class _Monitor(NamedTuple):
    name: str
    field: str
    measure: Callable[[list[Any], list[Any]], Any]


class Monitors:
    """Functions of (predictions, targets), two lists with an item for each batch.

    A class is called first to make such a function, and so is a function with `args` or `kwargs`. `find`
    imports a monitor; `taken` are names that no monitor may have.

    Raises:
        ConfigError: monitors are wrong; the error lists every problem.
    """

    def __init__(
        self, each_monitor: Sequence[core.Monitor], field: str, find: Find, taken: Collection[str] = ("loss",)
    ):
        problems: list[str] = []
        self._each: list[_Monitor] = []
        for number, each in enumerate(each_monitor):
            where = f"{field}.{number}"
            if each.name in taken or each.name in [other.name for other in self._each]:
                whose = "the criterion's" if each.name in taken else "another monitor's"
                problems.append(f"{where}.name: is {each.name}, which is {whose}; use another name")
            with gathered(problems):
                self._each.append(_Monitor(each.name, where, _made(each, where, find)))
        if problems:
            raise ConfigError(problems)

    def __bool__(self) -> bool:
        """Whether there are monitors."""
        return bool(self._each)

    def measure(self, kept: Sequence[tuple[Any, Any]]) -> dict[str, float]:
        """All metrics, from (predictions, targets) of each batch: NAME, or NAME/KEY if a monitor returns
        several.

        Raises:
            ConfigError: monitors fail, or return something other than numbers; the error names them.
        """
        problems: list[str] = []
        metrics: dict[str, float] = {}
        for monitor in self._each:
            with gathered(problems):
                results = _numbers(monitor, kept)
                _see_that_they_are_new(results, metrics, monitor)
                metrics |= results
        if problems:
            raise ConfigError(problems)
        return metrics


def to_keep(part: Any) -> Any:
    """Move a batch's values to the CPU, as a type that numpy has, until all batches are done."""
    if isinstance(part, Tensor):
        part = part.detach().cpu()
        part = part.float() if part.dtype in (torch.float16, torch.bfloat16) else part
        # Pickling a view would pickle the whole storage.
        return part.clone() if part.untyped_storage().nbytes() > part.nbytes else part
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*map(to_keep, part))
    if isinstance(part, (list, tuple)):
        return type(part)(map(to_keep, part))
    if isinstance(part, Mapping):
        return {key: to_keep(item) for key, item in part.items()}
    return part


def targets_in(batch: Any) -> Any:
    """The targets in a batch: its `y`, or the last of several parts.

    Raises:
        ConfigError: it has neither.
    """
    if isinstance(batch, Mapping) and "y" in batch:
        return batch["y"]
    if getattr(batch, "y", None) is not None:
        return batch.y
    if isinstance(batch, (list, tuple)) and len(batch) > 1:
        return batch[-1]
    raise ConfigError(
        [
            f"evaluator_tasks: the targets cannot be found in a batch that is {in_words(batch)}; give "
            "the batch a y, or make it (inputs, targets)"
        ]
    )


def _made(each_monitor: core.Monitor, field: str, find: Find) -> Callable[[list[Any], list[Any]], Any]:
    monitor = find(each_monitor.monitor, f"{field}.monitor", "monitor")
    if isinstance(monitor, type) or each_monitor.args or each_monitor.kwargs:
        arguments = resolved(each_monitor.kwargs, f"{field}.kwargs")
        before = resolved(each_monitor.args, f"{field}.args")
        try:
            monitor = construct(monitor, arguments, f"{field}.kwargs", f"{field}.monitor", before)
        except ConfigError as error:
            raise ConfigError([_placed(problem, field) for problem in error.problems]) from error
    if not callable(monitor):
        raise ConfigError([f"{field}.monitor: is {in_words(monitor)}, which cannot be called; {_TAKES}"])
    function: Callable[[list[Any], list[Any]], Any] = monitor
    return function


def _placed(problem: str, field: str) -> str:
    """A problem with its field: errors raised by a monitor name only its own arguments."""
    return problem if problem.startswith(field) else f"{field}.kwargs.{problem}"


_TAKES = "name a function(predictions, targets), or a class whose objects are called so"


def _numbers(monitor: _Monitor, kept: Sequence[tuple[Any, Any]]) -> dict[str, float]:
    # Copies, since a monitor might change them and others use them, too.
    predictions, targets = ([_copied(pair[place]) for pair in kept] for place in (0, 1))
    called = f"{monitor.field} ({monitor.name})"
    try:
        result = monitor.measure(predictions, targets)
    except ConfigError as error:
        raise ConfigError([f"{called}: {problem}" for problem in error.problems]) from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:2]  # [0] is this function's frame
        where = "".join(f", at {frame.filename}:{frame.lineno}" for frame in frames)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError([f"{called}: its monitor failed with {text}{where}"]) from error
    numbers: dict[str, float] = {}
    for name, value in _parts(monitor.name, result):
        if not hasattr(value, "__float__") or isinstance(value, (str, bytes)):
            part = "" if name == monitor.name else f" for {name}"
            raise ConfigError([f"{called}: its monitor returned {in_words(value)}{part}; {_WRITE}"])
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                [f"{called}: its monitor returned {in_words(value)}: {error}; {_WRITE}"]
            ) from error
    return numbers


def _see_that_they_are_new(
    found: Mapping[str, float], metrics: Mapping[str, float], monitor: _Monitor
) -> None:
    """Check that no two monitors return a result of the same name."""
    twice = [name for name in found if name in metrics]
    if twice:
        problem = f"its monitor returned {', '.join(twice)}, which another monitor has returned, too"
        raise ConfigError([f"{monitor.field} ({monitor.name}): {problem}; use another name"])


def _copied(part: Any) -> Any:
    """The kept values with copies of their tensors."""
    return tree_map_only(Tensor, Tensor.clone, part)


def _parts(name: str, given: Any) -> Iterator[tuple[str, Any]]:
    """A monitor's result by name, or its parts by NAME/KEY."""
    if hasattr(given, "tolist"):  # a torch or numpy array
        given = given.tolist()
    if isinstance(given, Mapping):
        parts = list(given.items())
    elif isinstance(given, (list, tuple)):
        parts = list(enumerate(given))
    else:
        yield name, given
        return
    for key, value in parts:
        yield from _parts(f"{name}/{key}", value)
