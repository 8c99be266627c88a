"""A script's directives: which scheduler they are for, and what they ask for. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.importing.account import Account
from launcher.importing.shell import Statement
from launcher.launchers.foreign.asked import Asked
from launcher.schedulers.reading import ScriptReader


class Head(NamedTuple):
    """What a script's directives say."""

    reader: ScriptReader | None
    """Of the scheduler that most of them are for; None: there is none."""
    asked: Asked
    notes: list[tuple[int, str]]
    """What a reader should know of a line."""


def read_head(lines: list[str], body: list[Statement], readers: list[ScriptReader], account: Account) -> Head:
    """Read the directives; `lines` are the script's, `body` what is not comment."""
    inside = {number for one in body for number in range(one.first, one.last + 1)}
    comments = [(number, line) for number, line in enumerate(lines, 1) if number not in inside]
    marked = {
        reader.name: [
            (number, found[1]) for number, line in comments if (found := reader.directive.match(line))
        ]
        for reader in readers
    }
    asked = Asked()
    notes: list[tuple[int, str]] = []
    reader = max(readers, key=lambda one: len(marked[one.name]))
    if not marked[reader.name]:
        return Head(None, asked, notes)
    first_command = min((one.first for one in body), default=len(lines) + 1)
    for number, rest in marked[reader.name]:
        line = lines[number - 1]
        if reader.ends_at_command and number > first_command:
            why = (
                f"{reader.title} reads no directive below the first command, which is on line {first_command}"
            )
            account.add(number, number, "dropped", line, why)
            continue
        before = len(asked.remarks)
        _checked(reader, rest, asked)
        fates = asked.remarks[before:]
        if not any(remark.fate in ("dropped", "not expressed") for remark in fates) or _says_more(
            rest, len(fates)
        ):
            account.add(number, number, "directive", line)
        for remark in fates:
            if remark.fate == "note":
                notes.append((number, remark.text))
            else:
                option, colon, why = remark.text.partition(": ")
                short = colon and option.startswith("-") and " " not in option
                account.add(number, number, remark.fate, line, why if short else remark.text)
    for other in readers:
        for number, _ in marked[other.name]:
            if other is not reader and number not in {at for at, _ in marked[reader.name]}:
                why = f"is for {other.title}, and most directives are for {reader.title}"
                account.add(number, number, "not expressed", lines[number - 1], why)
    for number, line in comments:
        if reader.mistaken.match(line) and number < first_command:
            why = f"{reader.title} takes it for a comment: a directive begins exactly as in the others"
            account.add(number, number, "dropped", line, why)
    asked.remarks.clear()
    reader.finish(asked)
    notes += [(0, remark.text) for remark in asked.remarks]
    return Head(reader, asked, notes)


def _checked(reader: ScriptReader, rest: str, asked: Asked) -> None:
    if not rest.strip():
        asked.drop("it says nothing")
        return
    reader.read(rest, asked)


def _says_more(rest: str, remarks: int) -> bool:
    """Whether a line has more options than those that something was said of."""
    return len(re.findall(r"(?:^|\s)-", rest)) > remarks
