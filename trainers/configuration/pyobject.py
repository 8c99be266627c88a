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
        """The object as it is written in YAML."""
        return f"!pyobject {self.path}"

    def resolve(self) -> Any:
        """Import the object.

        Raises:
            ConfigError: there is no such module, or it has no such name.
        """
        module, _, name = self.path.rpartition(".")
        missing = f"!pyobject {self.path}: "
        if not module:
            raise ConfigError([f"{missing}is a bare name; write its import path, such as my_package.{name}"])
        parts = module.split(".")
        for taken in range(len(parts), 0, -1):  # the path may lead into a class
            root = ".".join(parts[:taken])
            try:
                target: Any = sys.modules[root] if root in sys.modules else importlib.import_module(root)
            except ModuleNotFoundError as error:
                if error.name is None or not (root == error.name or root.startswith(f"{error.name}.")):
                    raise  # the module exists, but imports a module that does not
                continue
            for part in (*parts[taken:], name):
                if not hasattr(target, part):
                    near = did_you_mean(part, dir(target)) or _elsewhere(self.path)
                    raise ConfigError([f"{missing}{root} has no {part}{near}"])
                target = getattr(target, part)
            return target
        raise ConfigError([f"{missing}there is no module {parts[0]} here; {_instead(self.path)}"])


def _instead(path: str) -> str:
    """The remedy for a module that is not found."""
    ours = path.removeprefix("QuantumGrav.")
    return f"write !pyobject castoff.trainers.gnn.{ours}" if ours != path else "is its folder on PYTHONPATH?"


def _elsewhere(path: str) -> str:
    """The remedy for a name missing in `__main__`, if the program is castoff's."""
    program = sys.modules["__main__"]
    running = getattr(getattr(program, "__spec__", None), "name", None)
    if not path.startswith("__main__.") or running is None:
        return ""
    name = path.rpartition(".")[2]
    return (
        f": the program that runs is {running}; put {name} into a module next to the YAML file, such as "
        f"my_module.py, and write !pyobject my_module.{name}"
    )


def resolved(value: Any, field: str = "") -> Any:
    """Import what each `!pyobject` names, also in dicts and lists; other values are unchanged.

    Raises:
        ConfigError: there is no such object; the error names the field.
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
        ConfigError: there is no such object, or it cannot be called.
    """
    target = resolved(value, field)
    if not callable(target):
        meant = _meant(value, example) if isinstance(value, str) else example
        raise ConfigError([f"{field}: is {value!r}; write {meant}, or in Python the object itself"])
    return target


def _meant(text: str, example: str) -> str:
    """A suggestion for a text without `!pyobject`: an import path, or a name in the example's module."""
    if "." in text and is_import_path(text):
        return f"!pyobject {text}"
    module = example.removeprefix("!pyobject ").rpartition(".")[0]
    for name, value in vars(sys.modules[module]).items() if module in sys.modules else ():
        if name.lower() == text.lower() and callable(value):
            return f"!pyobject {module}.{name}"
    return example


def is_import_path(path: str) -> bool:
    """Whether the text has the form of an import path; nothing is imported."""
    return all(part.isidentifier() for part in path.split("."))
