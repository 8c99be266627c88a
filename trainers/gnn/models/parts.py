"""A part of a network as a configuration describes it: what makes it, and with which arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch import nn

import castoff.trainers
from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.names import arguments, found
from castoff.trainers.task.contract import wrong_arguments


class Fields(NamedTuple):
    """The names of a part's fields in the configuration."""

    type: str
    args: str
    kwargs: str


class Part(NamedTuple):
    """A class, function or module, and its arguments."""

    make: Any
    args: list[Any]
    kwargs: dict[str, Any]
    at: Fields


class Function(nn.Module):
    """A function as a layer: it gets the layer's inputs, then its own arguments."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]):
        super().__init__()
        self.function = function
        self.args = tuple(args)
        self.kwargs = dict(kwargs)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        """The function's result."""
        return self.function(*inputs, *self.args, **{**self.kwargs, **more})

    def extra_repr(self) -> str:
        """The function's name, for printing the model."""
        return name_of(self.function)


def part(
    make: Any, args: Any, kwargs: Any, at: Fields, kind: str, problems: list[str], default: Any = None
) -> Part | None:
    """Describe a part by three fields; None if there is none, or if it is wrong, with the reasons in
    `problems`.
    """
    before = len(problems)
    chosen = default if make is None else make
    if chosen is None:
        set_fields = [f for f, value in zip((at.args, at.kwargs), (args, kwargs), strict=True) if value]
        problems += [f"{field}: is given, but {at.type} is missing; set that, too" for field in set_fields]
        return None
    if args is not None and not isinstance(args, (list, tuple)):
        problems.append(f"{at.args}: is {args!r}, but takes a list of arguments")
    if kwargs is not None and not _by_name(kwargs):
        problems.append(f"{at.kwargs}: is {kwargs!r}, but takes arguments by name")
    try:
        target = found(chosen, at.type, kind)
    except ConfigError as error:
        problems += error.problems
    if len(problems) > before:
        return None
    resolved = (
        arguments(list(args or []), at.args, problems),
        arguments(dict(kwargs or {}), at.kwargs, problems),
    )
    return None if len(problems) > before else Part(target, *resolved, at)


def part_of(value: Any, field: str, kind: str, problems: list[str]) -> Part | None:
    """Describe a part by one field: [type, args, kwargs], its first items, {type, args, kwargs}, or the type.

    None if it is wrong; `problems` says why.
    """
    if isinstance(value, Mapping):
        for name in value:
            if name not in Fields._fields:
                near = suggestion(str(name), Fields._fields)
                problems.append(f"{field}.{name}: there is no such field{near}")
        if "type" not in value:
            problems.append(f"{field}.type: is missing; it names a class or function")
        if "type" not in value or any(name not in Fields._fields for name in value):
            return None
        at = Fields(*(f"{field}.{name}" for name in Fields._fields))
        return part(value["type"], value.get("args"), value.get("kwargs"), at, kind, problems)
    if not isinstance(value, (list, tuple)):
        at = Fields(field, f"{field}.args", f"{field}.kwargs")
        if value is not None:
            return part(value, None, None, at, kind, problems)
    elif 1 <= len(value) <= 3 and value[0] is not None:
        at = Fields(*(f"{field}[{number}]" for number in range(3)))
        make, args, kwargs = [*value, None, None][:3]
        return part(make, args, kwargs, at, kind, problems)
    problems.append(f"{field}: is {value!r}, but takes [type, args, kwargs], its first ones, or a type alone")
    return None


def _by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def built(described: Part, *first: Any, factory: bool = False) -> nn.Module:
    """The module that a part describes; `first` are arguments that come before the part's own.

    A function is the layer itself and gets the layer's inputs, unless it is a `factory`.

    Raises:
        ConfigError: it does not take these arguments.
    """
    make, args, kwargs, at = described
    if isinstance(make, nn.Module):
        if args or kwargs:
            field = at.args if args else at.kwargs
            raise ConfigError([f"{field}: is given, but {at.type} is a {name_of(make)} that exists already"])
        return make
    if not isinstance(make, type) and not factory:
        return Function(make, args, kwargs)
    module = made(described, *first)
    if isinstance(module, nn.Module):
        return module
    if callable(module) and not factory:
        return Function(module, [], {})
    raise ConfigError(
        [f"{at.type}: {name_of(make)} returned a {type(module).__name__}, but a layer is needed"]
    )


def made(described: Part, *first: Any) -> Any:
    """Call a part with its arguments.

    Raises:
        ConfigError: it does not take these arguments. An error in a user's own code is raised as it is.
    """
    make, args, kwargs, at = described
    problems = _wrong_arguments(described, first)
    if problems:
        raise ConfigError(problems)
    try:
        return make(*first, *args, **kwargs)
    except ConfigError as error:
        raise ConfigError([_placed(problem, described, len(first)) for problem in error.problems]) from error
    except Exception as error:
        if not of_libraries(error):
            raise  # a mistake in the user's class, shown by its traceback
        with_what = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        raise ConfigError([f"{at.type}: {name_of(make)}({with_what}) cannot be created: {error}"]) from error


def _wrong_arguments(described: Part, first: Sequence[Any]) -> list[str]:
    make, args, kwargs, at = described
    number = len(first) + len(args)
    problems = wrong_arguments(make, kwargs, at.kwargs, number)
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):
        return problems
    ordered = [parameter.name for parameter in parameters if parameter.kind in _IN_ORDER]
    if number > len(ordered) and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        most = len(ordered) - len(first)
        problems.append(
            f"{at.args}: has {len(args)} arguments, but {name_of(make)} takes at most {most} there"
        )
    return problems


_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _placed(problem: str, described: Part, first: int) -> str:
    """Prefix a part's error about an argument with the field that sets it."""
    name = re.match(r"\w+", problem)
    try:
        names = list(inspect.signature(described.make).parameters)[first:]
    except (TypeError, ValueError):
        names = []
    if name is None or name[0] not in names:
        return f"{described.at.type}: {problem}"
    index = names.index(name[0])
    if index < len(described.args):
        return f"{described.at.args}[{index}]{problem[name.end() :]}"
    return f"{described.at.kwargs}.{problem}"


def of_libraries(error: BaseException) -> bool:
    """Whether an error comes only from torch, torch_geometric or castoff, so that its text is enough for the
    user.
    """
    traceback = error.__traceback__
    while traceback is not None:
        if not in_library(Path(traceback.tb_frame.f_code.co_filename)):
            return False
        traceback = traceback.tb_next
    return True


_LIBRARIES = [Path(str(package.__file__)).parent for package in (torch, torch_geometric, castoff.trainers)]
_STANDARD = Path(inspect.__file__).parent


def in_library(file: Path) -> bool:
    """Whether a source file is one of these libraries' or the standard library's."""
    if not file.is_absolute():  # generated code, or torch's C++
        return True
    if file.name.startswith("torch_geometric."):  # torch_geometric's code, generated for convolutions
        return True
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return any(file.is_relative_to(home) for home in _LIBRARIES) or (
        file.is_relative_to(_STANDARD) and not installed
    )


def name_of(thing: Any) -> str:
    """The name of a class or function; for a module, the name of its class."""
    if isinstance(thing, Function):
        return name_of(thing.function)
    return str(getattr(thing, "__name__", None) or type(thing).__qualname__)
