"""Pages with what their comments ask for in its place; all else of a page is left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from docs.generate.fields import table
from docs.generate.flags import flags
from docs.generate.modules import rooms

PAGES = sorted(Path(__file__).resolve().parents[1].glob("*.md"))

END = "<!-- end of what `make docs` writes -->"

_WANTED = re.compile(
    rf"(<!-- (fields|flags|modules) ([^\n]*?)(?:\n(.*?)\n)? ?-->\n)(?:.*?{re.escape(END)}\n)", re.S
)


class Wanted(NamedTuple):
    """What a comment of a page asks for."""

    what: str
    """fields, flags or modules."""
    of: str
    """The struct or the command line, as `module:name`, or the package."""
    links: dict[str, str]
    """The fields to show, each with a link; none: all of them."""


def wanted(text: str) -> Iterator[Wanted]:
    """What the comments of a page ask for."""
    for found in _WANTED.finditer(text):
        yield _wanted(found)


def written(text: str) -> str:
    """A page with its tables as the types and docstrings have them now."""
    return _WANTED.sub(lambda found: f"{found[1]}\n{_made(_wanted(found))}\n{END}\n", text)


def _wanted(found: re.Match[str]) -> Wanted:
    rows = (row.partition(", see ") for row in (found[4] or "").splitlines())
    return Wanted(found[2], found[3].strip(), {name.strip(): link.strip() for name, _, link in rows})


def _made(what: Wanted) -> str:
    if what.what == "modules":
        return rooms(what.of)
    module, _, name = what.of.partition(":")
    named = getattr(import_module(module), name)
    return flags(named) if what.what == "flags" else table(named, what.links)
