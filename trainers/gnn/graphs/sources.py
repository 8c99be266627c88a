"""What the written graphs follow from: stores as they are read, and callables by their source text."""

from __future__ import annotations

import functools
import hashlib
import inspect
import marshal
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainers.core.fields import ConfigError


def digest(parts: Mapping[str, Any]) -> str:
    """A word that only the same parts have."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def state_of(path: Path) -> str:
    """A word that a file or a folder of files has as long as none of them is changed: by sizes and times.

    Raises:
        ConfigError: something in it cannot be read.
    """
    total = hashlib.sha256(str(path.resolve()).encode())
    try:
        for name, found in _files(path):
            total.update(f"\0{name}\0{found.st_size}\0{found.st_mtime_ns}".encode())
    except OSError as error:
        raise ConfigError([f"cannot be read: {error}"], str(path)) from error
    return total.hexdigest()


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    if not path.is_dir():
        yield "", path.stat()
        return
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(path / folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = f"{folder}{entry.name}"
                if entry.is_dir():
                    waiting.append(f"{name}/")
                else:
                    yield name, entry.stat()


def text_of(function: Callable[..., Any] | None) -> str:
    """A callable by its name, the text of its module, and what is bound in it.

    What it calls in other modules is not in it.
    """
    if function is None:
        return ""
    if isinstance(function, functools.partial):
        return digest({"of": text_of(function.func), "bound": _value((function.args, function.keywords))})
    if inspect.ismethod(function):
        return digest({"of": text_of(function.__func__), "bound": _value(function.__self__)})
    named = function if hasattr(function, "__qualname__") else type(function)
    parts = {"name": f"{named.__module__}.{named.__qualname__}", "module": _module_text(named)}
    if named is not function:
        parts["bound"] = _value(function)
    cells = getattr(function, "__closure__", None) or ()
    if cells:
        parts["closure"] = _value([cell.cell_contents for cell in cells])
    defaults = (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))
    if any(defaults):
        parts["defaults"] = _value(defaults)
    return digest(parts)


def _module_text(named: Any) -> str:
    """The text of the file that it stands in; else the version of its package, else its own code."""
    try:
        file = inspect.getsourcefile(named)
        if file is not None and Path(file).is_file():
            return hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return inspect.getsource(named)  # of a notebook's cell
    except (TypeError, OSError):
        code = getattr(named, "__code__", None)
        module = sys.modules.get(named.__module__.partition(".")[0])
        return marshal.dumps(code).hex() if code is not None else str(getattr(module, "__version__", ""))


def _value(value: Any) -> str:
    """What is bound in a callable: by its bytes, where it can be pickled."""
    if inspect.isroutine(value) or isinstance(value, functools.partial):
        return text_of(value)
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # noqa: BLE001  # whatever keeps it from being pickled
        return repr(value)


def texts_of(package: str) -> str:
    """The text of all modules of a package of ours."""
    file = sys.modules[package].__file__ if package in sys.modules else None
    if file is None:
        raise ConfigError([f"there is no source text of {package}"])
    total = hashlib.sha256()
    folder = Path(file).parent
    for path in sorted(folder.rglob("*.py")):
        total.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
