"""Tables of what the code keeps by name: what each name means, and what differs between alternatives."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from docs.generate.fields import written


def names(meanings: Mapping[str, str | tuple[str, ...]], heads: Collection[str]) -> str:
    """The meaning of each name (a comma separates several), or its other names, below two headings."""
    rows = (
        _row([_code(one), said if isinstance(said, str) else _code(", ".join(said))])
        for one, said in meanings.items()
    )
    return "\n".join([_row(heads), "|---|---|", *rows])


def defaults(alternatives: Mapping[str, Any]) -> str:
    """The `defaults` of each alternative, by their paths, but for empty sections."""
    fields = dict.fromkeys(path for each in alternatives.values() for path in each.defaults)
    rows = {path: [_default(each.defaults, path) for each in alternatives.values()] for path in fields}
    shown = [_row([f"`{path}`", *cells]) for path, cells in rows.items() if any(cells)]
    return "\n".join([_row(["field", *alternatives]), "|---" * (len(alternatives) + 1) + "|", *shown])


def _default(given: Mapping[str, Any], path: str) -> str:
    value = given.get(path)
    return written(getattr(value, "path", value))


def _code(names: str) -> str:
    return re.sub(r"[^, ]+", r"`\g<0>`", names)


def _row(cells: Collection[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
