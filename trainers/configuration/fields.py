"""Errors that a user can mend, and sections of fields read from plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert as convert_document

_NAMES = 5
"""Names in a message."""


class UserError(Exception):
    """One that a user can mend: its text says what is wrong and what to do, and no traceback says more."""


class ConfigError(UserError):
    """A configuration that cannot be used; its text names each problem with its path, and its place if known.

    `origin` is the place of those problems that have none.
    """

    def __init__(self, problems: Sequence[str | Problem], origin: str = ""):
        self.placed = [
            problem if isinstance(problem, Problem) else Problem(origin, "", problem) for problem in problems
        ]
        self.origin = origin
        super().__init__("\n".join(map(str, self.placed)))

    @property
    def problems(self) -> list[str]:
        """What is wrong, without the places."""
        return [_without_place(problem) for problem in self.placed]

    def reworded(self, words: Callable[[str], str]) -> ConfigError:
        """This error with each problem reworded."""
        placed = [Problem(problem.where, "", words(_without_place(problem))) for problem in self.placed]
        return ConfigError(placed, self.origin)

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between ranks
        return ConfigError, (self.placed, self.origin)


@contextmanager
def gathered(problems: list[str]) -> Iterator[None]:
    """What is wrong in here comes to `problems`, and what follows is looked at, too."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems


class PlainSection(Document):
    """A section that Python code gives, or another program's file: its values stand in no line."""

    UTF8_ONLY = False


def convert(data: Any, kind: type[Any], path: str, problems: list[str]) -> Any:
    """A struct from plain data that stands at `path`, field by field, so that every problem is found.

    Returns None, and has added to `problems`, where something is wrong.
    """
    found: list[Problem] = []
    at = tuple(path.split(".")) if path else ()
    section: Any = convert_document(PlainSection(data, ""), kind, found, at=at)
    problems += map(_without_place, found)
    return None if problems else section


def few(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _without_place(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message
