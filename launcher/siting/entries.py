"""The fields of a profile as data, with castoff's comments, and the lines that they make. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from castoff.launcher.errors import printable
from castoff.launcher.text.quoting import yaml_value, yaml_word

QUESTION = "# ?"
"""The beginning of a question's first line."""

_WIDTH = 100


class Field(NamedTuple):
    """A field whose value is plain data."""

    name: str
    value: Any
    note: str = ""
    """A comment after the value."""


class Section(NamedTuple):
    """A field whose value is a mapping, written as a block."""

    name: str
    entries: Sequence[Entry]
    note: str = ""


class Sections(NamedTuple):
    """A field whose value is a list of mappings, each written as a block."""

    name: str
    items: Sequence[Sequence[Entry]]


class Comment(NamedTuple):
    """A comment on its own lines."""

    text: str


class Question(NamedTuple):
    """A comment that asks the user for what the scheduler does not report."""

    text: str
    answer: Sequence[str] = ()
    """Lines of a profile, as an example of an answer."""


Entry: TypeAlias = Field | Section | Sections | Comment | Question


def cited(source: str, date: str) -> list[Entry]:
    """The two fields that cite the source of a section's values."""
    return [Field("source", source), Field("date", date)]


def lines_of(entries: Iterable[Entry], indent: int = 0) -> Iterator[str]:
    """The lines of a profile. A comment ends with its line, whatever characters the scheduler reports."""
    margin = " " * indent
    for entry in entries:
        if isinstance(entry, Comment):
            yield from _comment(entry.text, f"{margin}# ", f"{margin}# ")
        elif isinstance(entry, Question):
            yield from _comment(entry.text, f"{margin}{QUESTION} ", f"{margin}#   ")
            yield from (f"{margin}#     {printable(line)}" for line in entry.answer)
        elif isinstance(entry, Sections):
            yield f"{margin}{entry.name}:"
            for item in entry.items:
                first, *others = lines_of(item, indent + 4)
                yield f"{margin}  - {first.lstrip()}"
                yield from others
        else:
            yield from _field(entry, margin)


def _field(entry: Field | Section, margin: str) -> Iterator[str]:
    name, note = yaml_word(entry.name), f"  # {printable(entry.note)}" if entry.note else ""
    if isinstance(entry, Section):
        yield f"{margin}{name}:{note}"
        yield from lines_of(entry.entries, len(margin) + 2)
        return
    line = f"{margin}{name}: {yaml_value(entry.value)}"
    if isinstance(entry.value, list) and len(line) > _WIDTH:
        yield f"{margin}{name}:{note}"
        yield from (f"{margin}  - {yaml_value(item)}" for item in entry.value)
    else:
        yield line + note


def _comment(text: str, first: str, further: str) -> list[str]:
    words = printable(" ".join(text.split()))
    return textwrap.wrap(words, _WIDTH, initial_indent=first, subsequent_indent=further)


def count_questions(text: str) -> int:
    """The number of questions in a profile's text."""
    return sum(line.lstrip().startswith(QUESTION) for line in text.splitlines())
