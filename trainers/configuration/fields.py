"""Errors that a user can correct, and sections of fields read from plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert as convert_document

_NAMES = 5
"""The most names listed in a message."""


class UserError(Exception):
    """An error that a user can correct: its text has the problem and the remedy, and needs no traceback."""


class ConfigError(UserError):
    """A configuration that cannot be used; its text lists each problem with its field and, if known, line.

    `origin` is the location of problems that have none.
    """

    def __init__(self, problems: Sequence[str | Problem], origin: str = ""):
        self.placed = [
            problem if isinstance(problem, Problem) else Problem(origin, "", problem) for problem in problems
        ]
        self.origin = origin
        super().__init__("\n".join(map(str, self.placed)))

    @property
    def problems(self) -> list[str]:
        """The problems, without their locations."""
        return [_without_place(problem) for problem in self.placed]

    def reworded(self, words: Callable[[str], str]) -> ConfigError:
        """A copy of this error in which `words` has translated each problem."""
        placed = [Problem(problem.where, "", words(_without_place(problem))) for problem in self.placed]
        return ConfigError(placed, self.origin)

    def __reduce__(self) -> tuple[Any, ...]:  # it is pickled between ranks
        return ConfigError, (self.placed, self.origin)


@contextmanager
def gathered(problems: list[str]) -> Iterator[None]:
    """Collect the problems of a ConfigError raised in this context, and continue after the context."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems


class PlainSection(Document):
    """A section from Python code or another program's file: its values have no line numbers."""

    UTF8_ONLY = False


def convert(data: Any, kind: type[Any], path: str, problems: list[str]) -> Any:
    """Convert plain data at `path` to a struct, field by field, so that every problem is found.

    Problems are added to `problems`; if there are any, returns None.
    """
    new: list[Problem] = []
    at = tuple(path.split(".")) if path else ()
    section: Any = convert_document(PlainSection(data, ""), kind, new, at=at)
    problems += map(_without_place, new)
    return None if problems else section


def few(names: Sequence[str]) -> str:
    """The first names of a list, joined, and the number of further ones."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _without_place(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
