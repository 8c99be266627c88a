"""Digests of what the written graphs depend on: files by their sizes and times, callables by their source
text."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import torch

from castoff.trainers.configuration.fields import ConfigError


def digest(parts: Mapping[str, Any]) -> str:
    """A digest that identifies the parts."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def state_of(path: Path) -> str:
    """A digest of a file, or of all files in a folder, by their sizes and times.

    Raises:
        ConfigError: something in it cannot be read.
    """
    total = hashlib.sha256(str(path.resolve()).encode())
    try:
        for name, status in _files(path):
            total.update(f"\0{name}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    except OSError as error:
        raise ConfigError([f"cannot be read: {error}"], str(path)) from error
    return total.hexdigest()


def _files(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    if not path.is_dir():
        yield "", path.stat()
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(path / folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                name = f"{folder}{entry.name}"
                if entry.is_dir():
                    folders.append(f"{name}/")
                else:
                    yield name, entry.stat()


def text_of(function: Callable[..., Any] | None) -> str:
    """A digest of a callable: its name, its module's text, and what is bound in it; the same in every
    process.

    What it calls in other modules is not included.
    """
    return "" if function is None else _text(function, ())


def _text(function: Any, above: tuple[int, ...]) -> str:
    """The digest of `text_of`. `above`: the ids of the objects that this one is a part of."""
    if id(function) in above:
        return "itself"
    above = (*above, id(function))
    if isinstance(function, functools.partial):
        bound = _value((function.args, function.keywords), above)
        return digest({"of": _text(function.func, above), "bound": bound})
    if inspect.ismethod(function):
        return digest({"of": _text(function.__func__, above), "bound": _value(function.__self__, above)})
    named = function if hasattr(function, "__qualname__") else type(function)
    name, text = f"{named.__module__}.{named.__qualname__}", _module_text(named)
    parts: dict[str, Any] = {"name": name, "module": text}
    code = getattr(named, "__code__", None)
    if code is not None and (text is None or "<" in name):  # other functions may have this name
        parts["code"] = _code(code)
    if text is None:
        parts["uses"] = _value(_own_globals(named, code), above)
    if named is not function:
        parts["bound"] = _reduced(function, above)
    cells = getattr(function, "__closure__", None) or ()
    if cells:
        parts["closure"] = _value([_content(cell) for cell in cells], above)
    defaults = (getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None))
    if any(defaults):
        parts["defaults"] = _value(defaults, above)
    return digest(parts)


def _module_text(named: Any) -> str | None:
    """A digest of the object's source file, or the version of its package; None: it has no file."""
    try:
        file = inspect.getsourcefile(named)
    except (TypeError, OSError):
        file = None
    if file is not None and Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    if hasattr(named, "__code__") or named.__module__ == "__main__":
        return None
    module = sys.modules.get(str(named.__module__).partition(".")[0])
    return str(getattr(module, "__version__", ""))


def _code(code: CodeType) -> list[Any]:
    """The bytecode, names and constants of a function."""
    constants = [
        _code(constant) if isinstance(constant, CodeType) else _value(constant, ())
        for constant in code.co_consts
    ]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _own_globals(function: Any, code: CodeType | None) -> dict[str, Any]:
    """The globals that a function from a notebook or console uses, since these have no source file."""
    if code is None:  # a class
        attributes = vars(function).items()
        return {
            name: each for name, each in attributes if inspect.isroutine(each) or not name.startswith("__")
        }
    inside = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    found = {name: each for name, each in found.items() if not inspect.ismodule(each)}
    for each in inside:
        found |= _own_globals(function, each)
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _value(value: Any, above: tuple[int, ...]) -> str:
    """A digest of a value that is bound in a callable. A pickle would not do: those of sets and tensors
    differ between processes.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{type(value).__name__} {value!r}"
    if id(value) in above:
        return "itself"
    if inspect.isroutine(value) or isinstance(value, (type, functools.partial)):
        return _text(value, above)
    above = (*above, id(value))
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        content = hashlib.sha256(flat.tobytes()).hexdigest()
        return f"tensor {value.dtype} {tuple(value.shape)} {content}"
    if type(value) in (tuple, list):
        parts = [_value(each, above) for each in value]
    elif type(value) in (set, frozenset):
        parts = sorted(_value(each, above) for each in value)
    elif type(value) is dict:
        parts = [f"{_value(name, above)}: {_value(each, above)}" for name, each in value.items()]
    else:
        parts = [_reduced(value, above)]
    return digest({type(value).__name__: parts})


def _reduced(value: Any, above: tuple[int, ...]) -> str:
    """A digest of any other object, by what its pickle would be made from."""
    try:
        made = value.__reduce_ex__(2)
        if isinstance(made, str):
            return made
        made = [list(each) if isinstance(each, Iterator) else each for each in made]
        return _value(made, above)
    except Exception:  # noqa: BLE001  # whatever keeps it from being pickled
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def texts_of(package: str) -> str:
    """A digest of the source text of all modules in a package of castoff's."""
    file = sys.modules[package].__file__ if package in sys.modules else None
    if file is None:
        raise ConfigError([f"there is no source text of {package}"])
    total = hashlib.sha256()
    folder = Path(file).parent
    for path in sorted(folder.rglob("*.py")):
        total.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
