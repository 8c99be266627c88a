"""Fields of an imported job that castoff's own loader refuses are removed and reported. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from launcher.config.job import JobSpec
from launcher.errors import InvalidInput, Problem
from launcher.importing.account import Account
from launcher.importing.imported import PLACEHOLDER, Imported, nested


def make_valid(result: Imported) -> None:
    """Take away what castoff's own loader refuses, and say so."""
    while True:
        try:
            JobSpec.of(nested(result.fields))
        except InvalidInput as error:
            if not _take_away(error.problems[0], result):
                raise
        else:
            return


def _take_away(problem: Problem, result: Imported) -> bool:
    path = problem.path.split(".")
    for length in range(len(path), 0, -1):
        name = ".".join(path[:length])
        if name in result.fields:
            held = result.fields[name]
            key: Any = path[length] if length < len(path) else None
            if isinstance(held, list) and key is not None and key.isdecimal() and name != "command":
                gone: Any = held.pop(int(key))
            elif isinstance(held, dict) and key in held:
                gone = held.pop(key)
            else:
                gone = result.fields.pop(name)
            if name == "command":
                result.fields["command"] = PLACEHOLDER
            entries = _said_by("" if name == "command" else str(gone), result.account)
            for first, last, text in entries:
                result.account.add(first, last, "not expressed", text, f"{problem.path} {problem.message}")
            return True
    outer = path[0]
    held_by = [name for name in result.fields if name.startswith(f"{outer}.")]
    for name in held_by:
        result.fields.pop(name)
        for first, last, text in _said_by("", result.account):
            result.account.add(first, last, "not expressed", text, f"{problem.path} {problem.message}")
    return bool(held_by)


def _launch_line(account: Account) -> int:
    """The launch line, for what is from no other; else the first."""
    return next((one.first for one in account.of("launch")), 1)


def _said_by(text: str, account: Account) -> Iterator[tuple[int, int, str]]:
    """The line from which a value is."""
    words = " ".join(text.split())[:30]
    entries = [one for one in account.entries if words and words in one.text]
    for one in entries[:1]:
        yield one.first, one.last, one.text
    if not entries:
        launch = _launch_line(account)
        yield launch, launch, words
