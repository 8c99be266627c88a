"""What the fields of a struct mean, in words: for `help()` and for the references in docs/.

A field's description is what `meaning()` says of it, and the docstring below it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec


def descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The meaning of each field, by the name that a file gives it; empty where nobody has said it."""
    below: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        below |= _docstrings(base)
    return {
        field.encode_name: " ".join(filter(None, [_of_type(field.type), below.get(field.name)]))
        for field in msgspec.structs.fields(kind)
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
