"""What the fields of a struct are and mean: for `help()`, a command line's help and the references in docs/.

A field's description is what `meaning()` says of it, and the docstring below it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from castoff.launcher.typed.structure import bare, fields_of, is_struct, members


class Field(NamedTuple):
    """A field of a struct, or of a part of it."""

    path: str
    owner: type[msgspec.Struct]
    info: msgspec.structs.FieldInfo

    @property
    def type(self) -> Any:
        """Its type, with what that is annotated with."""
        return self.info.type

    @property
    def default(self) -> Any:
        """NODEFAULT: it is required."""
        made = self.info.default_factory
        return self.info.default if made is msgspec.NODEFAULT else made()

    @property
    def meaning(self) -> str:
        """Its description; reads the struct's source."""
        return descriptions(self.owner)[self.info.encode_name]


def fields(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Field]:
    """All fields of a struct, those of each part behind the part."""
    for name, info in fields_of(kind).items():
        yield Field(f"{prefix}{name}", kind, info)
        for part in parts(info.type):
            yield from fields(part, f"{prefix}{name}.")


def parts(kind: Any) -> list[type[msgspec.Struct]]:
    """The structs whose fields are a field's own: `Node | None`, a list's; not those that a mapping has."""
    options = [bare(option) for option in members(bare(kind))]
    items = [bare(get_args(option)[0]) if get_origin(option) is list else option for option in options]
    return [item for item in items if is_struct(item)]


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The meaning of each field, by the name that a file gives it; empty where nobody has said it."""
    below: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        below |= _docstrings(base)
    return {
        field.encode_name: " ".join(filter(None, [_of_type(field.type), below.get(field.name)]))
        for field in fields_of(kind).values()
    }


def _of_type(kind: Any) -> str:
    """The description that a type carries."""
    found = (getattr(meta, "description", None) for meta in getattr(kind, "__metadata__", ()))
    return next(filter(None, found), "")


def _docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class, each as one line."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return _read(file).get(kind.__qualname__, {}) if file else {}


@cache
def _read(file: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of each class of a module; none where its source is not there."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    return {node.name: _below(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[field.target.id] = " ".join(inspect.cleandoc(after.value.value).split())
    return found
