"""A configuration as values by path, for checkpoints and for comparing ranks."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.yaml_text import named_fields, plain

Fields: TypeAlias = dict[str, Any]
"""Values by path, such as `training.seed`; only JSON types."""

WORLD_SIZE, GLOBAL_BATCH = "world size", "global batch"
"""Names of two values that are not fields: both follow from the fields and the number of ranks."""


def fields(config: Config, world_size: int, task: object = None) -> Fields:
    """All values of a configuration, and the global batch on `world_size` ranks, for a checkpoint.

    `task` is a Task passed from Python code: its class replaces the field `task`.
    """
    flat: Fields = {}
    for name in config.__struct_fields__:
        _flatten(name, getattr(config, name), flat)
    if task is not None:
        flat["task"] = _as_json(PyObject(f"{type(task).__module__}.{type(task).__qualname__}"))
    training = config.training
    flat[WORLD_SIZE] = world_size
    flat[GLOBAL_BATCH] = training.batch_size * training.gradient_accumulation_steps * world_size
    return flat


def under(path: str, entries: Iterable[str]) -> bool:
    """Whether a path is one of the entries, or lies below it."""
    return any(path == entry or path.startswith(f"{entry}.") for entry in entries)


def _flatten(path: str, value: Any, flat: Fields) -> None:
    """Add the values of a section or mapping to `flat`, by path; values that JSON lacks become text.

    An argument that is an empty mapping is kept.
    """
    if hasattr(value, "__struct_fields__") and not isinstance(value, PyObject):
        for name, inner in named_fields(value):
            _flatten(f"{path}.{name}", inner, flat)
    elif isinstance(value, Mapping) and (value or "." not in path):
        for name, inner in value.items():
            _flatten(f"{path}.{name}", inner, flat)
    else:
        flat[path] = _as_json(plain(value))


def _as_json(value: Any) -> Any:
    """A value in JSON types, the same in every process."""
    if isinstance(value, PyObject):
        return f"!pyobject {_script(value.path)}"
    if isinstance(value, dict):
        return {str(name): _as_json(inner) for name, inner in value.items()}
    if isinstance(value, set):
        return sorted((_as_json(inner) for inner in value), key=repr)
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, (int, type(None))) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _script(path: str) -> str:
    """An import path with `__main__` replaced by the program's file name, however it was started."""
    module, _, name = path.partition(".")
    if module not in ("__main__", "__mp_main__"):
        return path
    file = getattr(sys.modules["__main__"], "__file__", None)
    return f"{Path(file).stem}.{name}" if file else f"__main__.{name}"
