"""Read a script's directives: which scheduler they are for, and what they request. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from castoff.launcher.config.batch_script import directive_lines
from castoff.launcher.importing.imported import Entry, brief
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.script_reader import ScriptReader


class Head(NamedTuple):
    """The result of reading a script's directives."""

    reader: ScriptReader | None
    """The reader for the scheduler of most directives; None if there are no directives."""
    asked: Asked
    directives: frozenset[int]
    """Numbers of the script's lines that are directives."""
    refused: list[Entry]
    left_out: list[Entry]
    notes: list[str]


def read_head(lines: list[str], readers: list[ScriptReader]) -> Head:
    """Read the directives in a script's lines."""
    above = _above_the_first_command(lines)
    marked = {reader.name: _marked(reader, lines, above) for reader in readers}
    # The reader with the most directives, else the one with the first.
    reader = max(readers, key=lambda item: (len(marked[item.name]), -min(marked[item.name], default=(0,))[0]))
    asked, head = Asked(), Head(None, Asked(), frozenset(), [], [], [])
    if not marked[reader.name]:
        return head
    of_scheduler = {number for number, _ in marked[reader.name]}
    for number, rest in marked[reader.name]:
        before = len(asked.remarks)
        reader.read(rest, asked)
        _remember(asked, before, number, lines[number - 1], head)
    before = len(asked.remarks)
    reader.finish(asked)
    _remember(asked, before, 0, "", head)
    others = {n for n in range(1, above + 1) if n not in of_scheduler and [*directive_lines(lines[n - 1])]}
    for number in sorted(others):
        why = f"{reader.title} reads it as a comment"
        head.left_out.append(Entry(number, brief(lines[number - 1]), why))
    for number, line in enumerate(lines[:above], 1):
        if reader.mistaken.match(line):
            mark = reader.mark
            head.notes.append(
                f"Line {number} is a comment to {reader.title}: a directive begins with {mark}."
            )
    for number, line in enumerate(lines[above:], above + 1):
        if reader.ends_at_command and reader.directive.match(line):
            head.notes.append(
                f"Line {number} is a comment to {reader.title}, because it is below the first command."
            )
    return head._replace(reader=reader, asked=asked, directives=frozenset(of_scheduler | others))


def _above_the_first_command(lines: list[str]) -> int:
    """The number of lines above the first command."""
    commands = (n for n, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return next(commands, len(lines))


def _marked(reader: ScriptReader, lines: list[str], above: int) -> list[tuple[int, str]]:
    """The directives for a scheduler: line numbers, and the text after the mark."""
    read = lines[:above] if reader.ends_at_command else lines
    return [
        (number, match[1]) for number, line in enumerate(read, 1) if (match := reader.directive.match(line))
    ]


def _remember(asked: Asked, before: int, number: int, line: str, head: Head) -> None:
    for remark in asked.remarks[before:]:
        if remark.fate == "note":
            head.notes.append(f"Line {number}: {remark.text}." if number else f"{remark.text}.")
        else:
            entries = head.refused if remark.fate == "not expressed" else head.left_out
            entries.append(Entry(number, brief(line), remark.text))
