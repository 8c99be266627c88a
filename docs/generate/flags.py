"""A table of a command line's flags: how each is written, the field that it sets, its meaning."""

from __future__ import annotations

import argparse

from castoff.trainers.program.flags import CommandLine, Refused

_HEAD = "| flag | field | meaning |\n|---|---|---|\n"


def flags(command_line: CommandLine) -> str:
    """The table of all flags but --help, in the order in which --help lists them; last, what is refused."""
    fields = {row.name: row.field for row in command_line.table if not isinstance(row, Refused)}
    rows = [
        _row(_usage(action), fields.get(action.dest), (action.help or "").replace("%%", "%"))
        for action in command_line.parser()._actions
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
    ]
    refused = [row for row in command_line.table if isinstance(row, Refused)]
    rows += [_row(f"`--{row.name}`", None, f"Refused: {row.why}.") for row in refused]
    return _HEAD + "\n".join(rows)


def _usage(action: argparse.Action) -> str:
    """How it is written: `--lr RATE`; one spelling of each name, the one with _ between its words."""
    value = str(action.metavar or "")
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if action.nargs == "+":
        value = f"{value} ..."
    names = [name for name in action.option_strings if "-" not in name.removeprefix("--")]
    return ", ".join(f"`{f'{name} {value}'.strip()}`" for name in names) or f"`{value}`"


def _row(usage: str, field: str | None, meaning: str) -> str:
    cells = (usage, f"`{field}`" if field else "", meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
