"""Tables of a package's modules: a room's docstring, and the first sentence of each of its modules'."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]


def rooms(package: str) -> str:
    """All rooms of a package in alphabetical order, each with a table of its modules."""
    return "\n\n".join(_room(folder) for folder in _folders(_CHECKOUT / package))


def _folders(folder: Path) -> Iterator[Path]:
    if (folder / "__init__.py").is_file():
        yield folder
        for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _folders(inner)


def _room(folder: Path) -> str:
    name = ".".join(("castoff", *folder.relative_to(_CHECKOUT).parts))
    rows = [
        f"| `{path.stem}` | {_cell(_sentence(path))} |"
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__"
    ]
    head = [f"### `{name}`", "", _paragraph(folder / "__init__.py")]
    return "\n".join([*head, *(["", "| module | what it does |", "|---|---|", *rows] if rows else [])])


def _paragraph(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    return re.split(r"(?<=[.!?]) (?=[A-Z])", _paragraph(path))[0].rstrip(".")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
