"""Flags that stand for fields of a configuration, as `--train_data FILE`: each system has a table of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from trainers.program.command_line import add_members, add_overrides, new_parser


class Flag(NamedTuple):
    """A flag, which may be written with _ or - between its words."""

    name: str
    field: str | None
    """The path of the field that it sets; None: it sets none, or `sets` says which."""
    metavar: str | None
    help: str
    type: Callable[[str], Any] = str
    choices: Sequence[str] | None = None
    nargs: Literal["+"] | None = None
    also: tuple[str, ...] = ()
    """Other names of it."""
    drops: str | None = None
    """A field of the file that says the same otherwise."""
    sets: Callable[[Any], Mapping[str, Any]] | None = None
    """What its value means, by the fields' paths, where that is not the value itself."""


class Switch(NamedTuple):
    """A flag without a value, which sets a field."""

    name: str
    field: str
    value: Any
    help: str
    against: tuple[str, ...] = ()
    """Flags that may not say anything else beside it."""


class Refused(NamedTuple):
    """A flag that other programs have, and why it has no meaning here."""

    name: str
    why: str


class Group(NamedTuple):
    """Flags under a title of their own."""

    title: str
    help: str
    flags: tuple[Flag, ...]


Table = tuple[Flag | Switch | Refused | Group, ...]

WANDB: Table = (
    Flag(
        "wandb_project",
        "logging.wandb.project",
        "NAME",
        "log to this project of Weights & Biases; offline unless CONFIG says otherwise",
    ),
    Flag("wandb_name", "logging.wandb.name", "NAME", "the run's name there; default: that of CONFIG"),
    Switch(
        "no_wandb",
        "logging.wandb",
        None,
        "do not log to Weights & Biases, whatever CONFIG says",
        against=("wandb_project", "wandb_name"),
    ),
)


class CommandLine(NamedTuple):
    """The command line of a system: a configuration, and flags that set its fields."""

    system: str
    description: str
    table: Table
    without: str
    """What holds without a configuration's file."""
    example: str
    """Of what may follow --set."""
    own_words: Callable[[str], str] = str
    """As `run_on_rank` has it."""

    def parser(self) -> argparse.ArgumentParser:
        """All flags."""
        made = new_parser(self.system, self.description)
        made.description = self.own_words(made.description or "")
        made.add_argument("file", nargs="?", metavar="CONFIG", help=f"YAML of the training; {self.without}")
        made.add_argument("--config", metavar="CONFIG", help="as CONFIG")
        add_overrides(made, self.example)
        add_members(made)
        for row in self.table:
            _add(made, row)
        return made

    def parsed(self, words: Sequence[str] | None = None) -> argparse.Namespace:
        """The command line, checked as far as that goes without a configuration; `path` is the file's.

        It ends this process if something is wrong.
        """
        made = self.parser()
        arguments = made.parse_args(words)
        for row in self.table:
            if isinstance(row, Refused) and getattr(arguments, row.name) is not None:
                made.error(f"--{row.name} has no meaning here: {row.why}")
            if isinstance(row, Switch) and getattr(arguments, row.name):
                _check_alone(made, arguments, row)
        if arguments.config is not None and arguments.file is not None:
            made.error(f"--config {arguments.config} stands beside {arguments.file}; drop one of the two")
        arguments.path = arguments.file if arguments.config is None else arguments.config
        return arguments

    def from_flags(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """What the flags set, by the fields' paths.

        Raises:
            ConfigError: one says something that can be no field.
        """
        found: dict[str, Any] = {}
        for row in self.table:
            if isinstance(row, Switch) and getattr(arguments, row.name):
                found[row.field] = row.value
            elif isinstance(row, Flag) and (value := getattr(arguments, row.name)) is not None:
                found |= row.sets(value) if row.sets else {row.field: value} if row.field else {}
                found |= {row.drops: None} if row.drops else {}
        return found


def flags_by_field(table: Table) -> dict[str, str]:
    """The flags by the paths of the fields that they set."""
    return {row.field: f"--{row.name}" for row in table if isinstance(row, Flag) and row.field}


def at_least(least: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"is {text!r}, but takes a whole number of at least {least}")
        return found

    return number


def _check_alone(made: argparse.ArgumentParser, arguments: argparse.Namespace, switch: Switch) -> None:
    beside = {name: getattr(arguments, name) for name in switch.against}
    given = [f"--{name} {value}" for name, value in beside.items() if value not in (None, switch.value)]
    if given:
        made.error(f"--{switch.name} stands beside {' and '.join(given)}; drop one of the two")


def _add(parser: Any, row: Flag | Switch | Refused | Group) -> None:
    if isinstance(row, Group):
        group = parser.add_argument_group(row.title, row.help)
        for flag in row.flags:
            _add(group, flag)
    elif isinstance(row, Refused):
        parser.add_argument(*_spelled(row.name), dest=row.name, nargs="?", const="", help=argparse.SUPPRESS)
    elif isinstance(row, Switch):
        parser.add_argument(*_spelled(row.name), dest=row.name, action="store_true", help=row.help)
    else:
        parser.add_argument(
            *(option for name in (row.name, *row.also) for option in _spelled(name)),
            dest=row.name,
            metavar=row.metavar,
            help=row.help,
            type=row.type,
            choices=row.choices,
            nargs=row.nargs,
        )


def _spelled(name: str) -> Iterable[str]:
    """Both of its spellings."""
    return dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
