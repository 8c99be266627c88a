"""Pages with what their comments ask for in its place; all else of a page is left alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from docs.generate.classes import arguments, members
from docs.generate.fields import table
from docs.generate.flags import flags
from docs.generate.modules import rooms
from docs.generate.tables import defaults, names

PAGES = sorted(Path(__file__).resolve().parents[1].rglob("*.md"))

END = "<!-- end of what `make docs` writes -->"

_KINDS = "fields|flags|modules|arguments|members|names|defaults"
_WANTED = re.compile(rf"(<!-- ({_KINDS}) ([^\n]*?)(?:\n(.*?)\n)? ?-->\n)(?:.*?{re.escape(END)}\n)", re.S)


class Wanted(NamedTuple):
    """What a comment of a page asks for."""

    what: str
    """What kind of table, as the package's docstring has them."""
    of: str
    """The package, or what is described, as `module:name`."""
    links: dict[str, str]
    """The fields to show, each with a link; none: all of them. Of names, the headings."""


def wanted(text: str) -> Iterator[Wanted]:
    """What the comments of a page ask for."""
    for found in _WANTED.finditer(text):
        yield _wanted(found)


def written(text: str) -> str:
    """A page with its tables as the types and docstrings have them now."""
    return _WANTED.sub(lambda found: f"{found[1]}\n{_made(_wanted(found))}\n{END}\n", text)


def without_generated(text: str) -> str:
    """A page's own words: without the comments and what stands below them."""
    return re.sub(r"<!--.*?-->", "", _WANTED.sub("", text), flags=re.DOTALL)


def _wanted(found: re.Match[str]) -> Wanted:
    rows = (row.partition(", see ") for row in (found[4] or "").splitlines())
    return Wanted(found[2], found[3].strip(), {name.strip(): link.strip() for name, _, link in rows})


def _made(what: Wanted) -> str:
    if what.what == "modules":
        return rooms(what.of)
    if what.what == "arguments":
        return arguments(what.of)
    if what.what == "members":
        return members(what.of, what.links)
    module, _, name = what.of.partition(":")
    named = getattr(import_module(module), name)
    if what.what == "fields":
        return table(named, what.links)
    if what.what == "names":
        return names(named, what.links)
    return flags(named) if what.what == "flags" else defaults(named)
