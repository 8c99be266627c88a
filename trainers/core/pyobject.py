"""Python objects that a configuration names by their import paths."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import importlib
import sys
from typing import Any

import msgspec

from trainers.core.fields import ConfigError, suggestion


class PyObject(msgspec.Struct, frozen=True):
    """A Python object by its import path, as `torch.optim.AdamW`."""

    path: str

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
                    near = suggestion(part, dir(found), listed=False)
                    raise ConfigError([f"{missing}{root} has no {part}{near}"])
                found = getattr(found, part)
            return found
        raise ConfigError([f"{missing}there is no module {parts[0]} here; is its folder on PYTHONPATH?"])


def resolved(value: Any) -> Any:
    """The object that a `!pyobject` names; anything else as it is."""
    return value.resolve() if isinstance(value, PyObject) else value


def called(value: Any, field: str, example: str) -> Any:
    """The class or function that a field names.

    Raises:
        ConfigError: it is none, or there is none of that name.
    """
    found = resolved(value)
    if not callable(found):
        raise ConfigError([f"{field}: is {value!r}; write {example}"])
    return found


def is_import_path(path: str) -> bool:
    """Whether it is written as one; nothing is imported."""
    return all(part.isidentifier() for part in path.split("."))
