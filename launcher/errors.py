"""castoff's errors: what was set, where, what is allowed and how to mend it."""

from __future__ import annotations

import sys
from collections import namedtuple


def printable(text: str) -> str:
    """Text for a message: on one line, and encodable as UTF-8, whatever it contains."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def report(line: str) -> None:
    """Print a message on standard error, for the person at the keyboard.

    It may hold anybody's text, a file's name or a scheduler's answer of several lines: what would move a
    terminal's cursor otherwise is shown escaped.
    """
    if sys.stderr is not None:  # as where it was closed
        for part in line.split("\n"):
            print(f"castoff: {printable(part)}", file=sys.stderr)


def shown(value: object) -> str:
    """A value as messages show it: text in quotes, invisible characters escaped, long values cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class CastoffError(Exception):
    """An error meant for the person at the keyboard: its text is the whole message.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 1


class Problem(namedtuple("Problem", "where path message")):
    """One thing wrong with an input.

    Not typing's tuple, and no dataclass, because these would double the start-up of `castoff.launcher.ranks`.
    """

    __slots__ = ()

    where: str
    """The place in the input: `causets.yaml:7`, `--set nodes=0`, `site aurora`. Empty: unknown."""
    path: str
    """The field, dotted as `--set` spells it: `array.count`. Empty for the whole input."""
    message: str
    """What was set, what is allowed and how to mend it."""

    def __str__(self) -> str:
        field = self.where.removeprefix("--set ").partition("=")[0].lstrip("-").replace("-", "_")
        parts = [self.where, "" if field == self.path else self.path, self.message]
        return ": ".join(part for part in parts if part)


class InvalidInput(CastoffError):
    """An input that cannot be used; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: list[Problem]):
        self.problems = _by_line(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def _by_line(problems: list[Problem]) -> list[Problem]:
    """The problems in their order, but those of one file in the order of its lines."""
    numbers: dict[str, list[tuple[int, int]]] = {}
    for place, problem in enumerate(problems):
        file, _, line = problem.where.rpartition(":")
        if line.isdecimal():
            numbers.setdefault(file, []).append((int(line), place))
    ordered = [*problems]
    for of_file in numbers.values():
        for (_, place), (_, source) in zip(of_file, sorted(of_file), strict=True):
            ordered[place] = problems[source]
    return ordered


class PlacementError(CastoffError):
    """The rank of this process is not known; the message names the fix."""


class StillRunning(CastoffError, TimeoutError):
    """What was waited for was not over in the given time."""

    exit_code = 124  # as timeout(1)
