"""Plain data read into typed sections, with every mistake in words: what it is, and what the field takes."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import inspect

_NAMES = 5
"""Names in a message."""


class UserError(Exception):
    """One that a user can mend: its text says what is wrong and what to do, and no traceback says more."""


class ConfigError(UserError):
    """A configuration that cannot be used; its text names every problem with its path."""

    def __init__(self, problems: list[str], origin: str = "config"):
        self.problems = problems
        self.origin = origin
        super().__init__("\n".join(f"{origin}: {problem}" for problem in problems))

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between ranks
        return ConfigError, (self.problems, self.origin)


@contextmanager
def gathered(problems: list[str]) -> Iterator[None]:
    """What is wrong in here comes to `problems`, and what follows is looked at, too."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems


def convert(
    data: Any, kind: type[Any], path: str, problems: list[str], whole: type[Any] | None = None
) -> Any:
    """A struct from data, field by field, so that every problem is found.

    Returns None, and has added to `problems`, where something is wrong. `whole` is the struct of which
    this one is a part, at `path`: a field that is known elsewhere in it is told where.
    """
    if not isinstance(data, Mapping):
        problems.append(f"{path or 'it'}: holds {data!r}, but takes a section of fields")
        return None
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in data:
        if name not in known:
            near = _elsewhere(str(name), path, whole or kind) or suggestion(str(name), known)
            problems.append(f"{_join(path, str(name))}: there is no such field{near}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        where = _join(path, name)
        if name not in data:
            if field.required:
                problems.append(f"{where}: is missing; it takes {takes(field.type)}")
            continue
        inner = _section(field.type)
        if inner is not None and data[name] is not None:
            values[name] = convert(data[name], inner, where, problems, whole or kind)
            continue
        listed = _listed(field.type)
        if listed is not None and isinstance(data[name], list):
            values[name] = [
                convert(each, listed, f"{where}.{number}", problems, whole or kind)
                for number, each in enumerate(data[name])
            ]
            continue
        try:
            values[name] = msgspec.convert(data[name], field.type, strict=True)
            if isinstance(data[name], float) and not math.isfinite(data[name]):
                raise msgspec.ValidationError
        except msgspec.ValidationError:
            problems += _mistakes(where, data[name], field.type)
    return None if problems else kind(**values)


def _elsewhere(name: str, path: str, whole: type[Any]) -> str:
    """Where a field of that name belongs: nearest to `path`, else where it stands highest."""
    found = [place for place in _places(whole, "") if place.rpartition(".")[2] == name]
    if not found:
        return ""
    near = [place for place in found if place.startswith(f"{path}.")] or found
    highest = min(place.count(".") for place in near)
    return f"; did you mean {' or '.join(place for place in near if place.count('.') == highest)}?"


def _places(kind: type[Any], path: str) -> Iterator[str]:
    """The paths of all fields of a struct, and of what fields that take any name have as an example."""
    for field in msgspec.structs.fields(kind):
        where = _join(path, field.name)
        yield where
        inner = _section(field.type)
        if inner is not None:
            yield from _places(inner, where)
        for given in getattr(field.type, "__metadata__", ()):
            yield from (_join(where, name) for example in given.examples or () for name in example)


def _mistakes(where: str, value: Any, hint: Any) -> list[str]:
    """What is wrong with a value that a field does not take."""
    names = [name for name in value if not isinstance(name, str)] if isinstance(value, Mapping) else []
    if names and takes(hint) == _BY_NAME:  # YAML reads on, off, yes, no as true and false
        return [f"{where}: has a field {name!r}, whose name is not text; put it in quotes" for name in names]
    near = suggestion(value, _choices(hint), listed=False)
    return [f"{where}: is {value!r}, but takes {takes(hint)}{near}"]


def suggestion(word: Any, known: Iterable[str], *, listed: bool = True) -> str:
    """What might have been meant by a word; else, if they are to be `listed`, what there is."""
    names = [str(name) for name in known]
    near = [
        found
        for written in ((word, word.lower()) if isinstance(word, str) else ())
        for found in difflib.get_close_matches(written, names, n=1)
    ]
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(names)}" if listed and names else ""


def few(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def takes(hint: Any) -> str:
    """What a field of a type takes, in words: `a whole number of at least 1, or null`."""
    if get_origin(hint) in (Union, UnionType):
        return ", or ".join(takes(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    return _words(inspect.type_info(hint))


def _words(kind: Any) -> str:
    match kind:
        case inspect.Metadata():
            return _words(kind.type)
        case inspect.IntType():
            return f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind)}"
        case inspect.ListType():
            item = kind.item_type
            return "a list" if isinstance(item, inspect.AnyType) else f"a list, of {_words(item)}"
        case inspect.VarTupleType():
            return f"a list, of {_words(kind.item_type)}"
        case inspect.TupleType():
            each = list(dict.fromkeys(map(_words, kind.item_types)))
            return f"a list of {len(kind.item_types)}, of {' and '.join(each)}"
        case inspect.DictType() | inspect.StructType():
            return _BY_NAME
    return _PLAIN.get(type(kind).__name__, "a value")


_BY_NAME = "fields by name"
_PLAIN = {"StrType": "text", "BoolType": "true or false", "NoneType": "null"}


def _bounds(number: Any) -> str:
    if number.ge is not None and number.le is not None:
        return f" from {_number(number.ge)} to {_number(number.le)}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    said = [
        f"{word} {_number(getattr(number, name))}"
        for name, word in words.items()
        if getattr(number, name) is not None
    ]
    return f" {' and '.join(said)}" if said else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _section(hint: Any) -> type[Any] | None:
    """The struct that a field holds, perhaps or null."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, msgspec.Struct)), None)


def _listed(hint: Any) -> type[Any] | None:
    """The struct of which a field holds a list."""
    return _section(get_args(hint)[0]) if get_origin(hint) is list else None


def _choices(hint: Any) -> list[str]:
    """The words that a field takes, if it takes some alone."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [word for each in get_args(hint) for word in _choices(each)]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
