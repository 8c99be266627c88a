"""A table of a struct's fields: name, what it takes in words, default, meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from castoff.launcher.typed.descriptions import Field, fields

_HEAD = "| field | takes | default | meaning |\n|---|---|---|---|\n"


def table(kind: type[msgspec.Struct], links: Mapping[str, str]) -> str:
    """The table of a struct's fields: of those that are named, each with a link or none, else of its own.

    Raises:
        ValueError: there is no such field.
    """
    known = {field.path: field for field in fields(kind)}
    return _HEAD + "\n".join(_row(known[path], links.get(path, "")) for path in selected(kind, links))


def selected(kind: type[msgspec.Struct], names: Collection[str]) -> list[str]:
    """The paths of the fields that are named, `part.*` for all of a part's; of a struct's own if none is.

    Raises:
        ValueError: there is no such field.
    """
    known = [field.path for field in fields(kind)]
    found: dict[str, None] = {}
    for name in names or [path for path in known if "." not in path]:
        part, _, last = name.rpartition(".")
        found |= dict.fromkeys(path for path in known if path.rpartition(".")[0] == part and last == "*")
        if last != "*":
            found[name] = None
    if unknown := [name for name in found if name not in known]:
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}")
    return list(found)


def _row(field: Field, link: str) -> str:
    meaning = " ".join(filter(None, [field.meaning, link and f"[More]({link})."]))
    cells = (f"`{field.path}`", takes(field.type, field.default), written(field.default), meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def written(default: Any) -> str:
    """A default as a file would have it; nothing where the field may be left empty."""
    if default is msgspec.NODEFAULT:
        return "required"
    if default in (None, "", [], {}, ()) or isinstance(default, msgspec.Struct):
        return ""
    if isinstance(default, str):
        return f"`{default}`"
    return f"`{default:g}`" if type(default) is float else f"`{json.dumps(default)}`"


def takes(kind: Any, default: Any = None) -> str:
    """What a field takes, in words."""
    words = ", or ".join(dict.fromkeys(_words(option) for option in _options(kind)))
    may_be_null = NoneType in _members(kind) and default not in (None, msgspec.NODEFAULT)
    return f"{words}, or null" if may_be_null else words


def _words(kind: Any, *, many: bool = False) -> str:
    metas = getattr(kind, "__metadata__", ())
    for extra in filter(None, (meta.extra for meta in metas)):
        if "takes" in extra:
            return _briefly(str(extra.get("many", extra["takes"]) if many else extra["takes"]))
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) in (list, tuple):
        return _listed(kind, many)
    if get_origin(kind) is dict:
        return _named(get_args(kind)[1])
    if kind in (int, float):
        return ("whole number" if kind is int else "number") + ("s" if many else "") + _bounds(metas)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "sections" if many else "section"
    singular, plural = _PLAIN[kind]
    return plural if many else singular


def _briefly(words: str) -> str:
    """What an error says that a field takes, without its examples: a meaning has those."""
    kept = re.split(r": | \(|, as in |, not empty|, none empty", words)[0]
    for said, brief in _BRIEF.items():
        kept = kept.replace(said, brief)
    return kept.removeprefix("a ")


_BRIEF = {
    " of at least ": " from ",
    "one line of text": "text",
    "lines of text": "texts",
    "!pyobject": "`!pyobject`",
}


_PLAIN: dict[Any, tuple[str, str]] = {
    str: ("text", "texts"),
    bool: ("true or false", "true or false"),
    Any: ("any value", "any values"),
}


def _listed(kind: Any, many: bool) -> str:
    """A list, or so many of something."""
    of = "lists" if many else "list"
    items = [item for item in get_args(kind) if item is not ...]
    words = " or ".join(dict.fromkeys(_words(item, many=True) for item in items))
    if len(items) > 1:
        return f"{of} of {len(items)} {words}"
    return of if items == [Any] else f"{of} of {words}"


def _named(item: Any) -> str:
    words = takes(item)
    return "fields by name" if item is Any else f"names, each with {words}"


def _bounds(metas: tuple[msgspec.Meta, ...]) -> str:
    """The limits of a number: ` from 1`, ` above 0`, ` from 0 to below 1`."""
    said = {name: value for meta in metas for name in _LIMITS if (value := getattr(meta, name)) is not None}
    from_all = {"ge": -(2**63), "le": 2**63 - 1}  # whatever an integer of 64 bits can be
    limits = [f" {_LIMITS[name]} {value:g}" for name, value in said.items() if from_all.get(name) != value]
    return (", up" if "gt" in said else "").join(limits)


_LIMITS = {"ge": "from", "gt": "above", "le": "to", "lt": "to below"}


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other, itself."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_args(bare) if get_origin(bare) in (Union, UnionType) else (kind,)


def _options(kind: Any) -> list[Any]:
    """What a field takes beside null. What is said of the whole of a union holds for it."""
    said = any(meta.extra and "takes" in meta.extra for meta in getattr(kind, "__metadata__", ()))
    return [kind] if said else [option for option in _members(kind) if option is not NoneType]
