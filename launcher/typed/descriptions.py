"""The fields of a struct and their descriptions: for `help()`, `--help` and the references in docs/.

A field's description is the text of its type's `meaning()`, followed by the docstring below the field.
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
    """A field of a struct, or of a struct inside it."""

    path: str
    owner: type[msgspec.Struct]
    info: msgspec.structs.FieldInfo

    @property
    def type(self) -> Any:
        """The type, with its annotations."""
        return self.info.type

    @property
    def default(self) -> Any:
        """The default; NODEFAULT if the field is required."""
        factory = self.info.default_factory
        return self.info.default if factory is msgspec.NODEFAULT else factory()

    @property
    def meaning(self) -> str:
        """The description, which is read from the struct's source."""
        return descriptions(self.owner)[self.info.encode_name]


def fields(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Field]:
    """All fields of a struct; the fields of an inner struct follow the field that contains it."""
    for name, info in fields_of(kind).items():
        yield Field(f"{prefix}{name}", kind, info)
        for part in parts(info.type):
            yield from fields(part, f"{prefix}{name}.")


def parts(kind: Any) -> list[type[msgspec.Struct]]:
    """The structs in a field's type, as in `Node | None` or `list[Node]`; not the values of a mapping."""
    options = [bare(option) for option in members(bare(kind))]
    items = [bare(get_args(option)[0]) if get_origin(option) is list else option for option in options]
    return [item for item in items if is_struct(item)]


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The description of each field, by its name in a file; empty for a field without one."""
    below: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        below |= _docstrings(base)
    return {
        field.encode_name: " ".join(filter(None, [_of_type(field.type), below.get(field.name)]))
        for field in fields_of(kind).values()
    }


def _of_type(kind: Any) -> str:
    """The description that a type carries."""
    texts = (getattr(meta, "description", None) for meta in getattr(kind, "__metadata__", ()))
    return next(filter(None, texts), "")


def _docstrings(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a class, each as one line."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return _read(file).get(kind.__qualname__, {}) if file else {}


@cache
def _read(file: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of each class of a module; empty if its source cannot be read."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    return {node.name: _below(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below(node: ast.ClassDef) -> dict[str, str]:
    texts = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            texts[field.target.id] = " ".join(inspect.cleandoc(after.value.value).split())
    return texts
