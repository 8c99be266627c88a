"""Python objects that a configuration names by their import paths."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import importlib
import sys
from typing import Any

import msgspec

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.fields import ConfigError


class PyObject(msgspec.Struct, frozen=True):
    """A Python object by its import path, as `torch.optim.AdamW`."""

    path: str

    def __repr__(self) -> str:
        """As one writes it."""
        return f"!pyobject {self.path}"

    def resolve(self) -> Any:
        """Import it.

        Raises:
            ConfigError: there is no such module, or nothing of that name in it.
        """
        module, _, name = self.path.rpartition(".")
        missing = f"!pyobject {self.path}: "
        if not module:
            raise ConfigError([f"{missing}is a bare name; write its import path, as in my_package.{name}"])
        parts = module.split(".")
        for taken in range(len(parts), 0, -1):  # the path may lead into a class
            root = ".".join(parts[:taken])
            try:
                found: Any = sys.modules[root] if root in sys.modules else importlib.import_module(root)
            except ModuleNotFoundError as error:
                if error.name is None or not (root == error.name or root.startswith(f"{error.name}.")):
                    raise  # the module is there, and lacks one that it needs itself
                continue
            for part in (*parts[taken:], name):
                if not hasattr(found, part):
                    near = did_you_mean(part, dir(found)) or _elsewhere(self.path)
                    raise ConfigError([f"{missing}{root} has no {part}{near}"])
                found = getattr(found, part)
            return found
        raise ConfigError([f"{missing}there is no module {parts[0]} here; {_instead(self.path)}"])


def _instead(path: str) -> str:
    """What to do about a module that is not here."""
    ours = path.removeprefix("QuantumGrav.")
    return f"write !pyobject castoff.trainers.gnn.{ours}" if ours != path else "is its folder on PYTHONPATH?"


def _elsewhere(path: str) -> str:
    """Where to put what `__main__` does not have, if the program is none of the user's."""
    program = sys.modules["__main__"]
    own = getattr(getattr(program, "__spec__", None), "name", None)
    if not path.startswith("__main__.") or own is None:
        return ""
    name = path.rpartition(".")[2]
    return (
        f": the program that runs is {own}; put {name} into a module beside the YAML, as my_module.py, and "
        f"write !pyobject my_module.{name}"
    )


def resolved(value: Any, field: str = "") -> Any:
    """The object that a `!pyobject` names, or what such ones lie in with them; anything else as it is.

    Raises:
        ConfigError: there is none, and in which field.
    """
    if isinstance(value, PyObject):
        try:
            return value.resolve()
        except ConfigError as error:
            where = f"{field}: " if field else ""
            raise ConfigError([f"{where}{problem}" for problem in error.problems]) from error
    if type(value) is dict:
        return {name: resolved(each, f"{field}.{name}") for name, each in value.items()}
    if type(value) is list:
        return [resolved(each, f"{field}[{number}]") for number, each in enumerate(value)]
    return value


def called(value: Any, field: str, example: str) -> Any:
    """The class or function that a field names.

    Raises:
        ConfigError: it is none, or there is none of that name.
    """
    found = resolved(value, field)
    if not callable(found):
        meant = _meant(value, example) if isinstance(value, str) else example
        raise ConfigError([f"{field}: is {value!r}; write {meant}, or in Python the object itself"])
    return found


def _meant(text: str, example: str) -> str:
    """What a text without `!pyobject` probably means: an import path, or a name in the example's module."""
    if "." in text and is_import_path(text):
        return f"!pyobject {text}"
    module = example.removeprefix("!pyobject ").rpartition(".")[0]
    for name, found in vars(sys.modules[module]).items() if module in sys.modules else ():
        if name.lower() == text.lower() and callable(found):
            return f"!pyobject {module}.{name}"
    return example


def is_import_path(path: str) -> bool:
    """Whether it is written as one; nothing is imported."""
    return all(part.isidentifier() for part in path.split("."))
