"""Flags that set fields of a configuration, such as `--train_data FILE`; each system has a table of them.

A flag's type, help and default come from its field.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from castoff.launcher.typed.descriptions import Field, fields
from castoff.launcher.typed.structure import allowed, bare, members, takes
from castoff.trainers.program.command_line import add_members, add_overrides, new_parser


class Flag(NamedTuple):
    """A flag that sets a field; it may be written with _ or - between its words."""

    name: str
    field: str
    """The path of the field."""
    metavar: str | None = None
    help: str = ""
    """Replaces the field's help, and its default if this text has one."""
    type: Callable[[str], Any] | None = None
    """Converts a value, in place of the field's type."""
    choices: Sequence[str] = ()
    also: tuple[str, ...] = ()
    """Other names of the flag."""
    drops: str | None = None
    """A field of CONFIG that the flag replaces, so it is dropped."""
    sets: Callable[[Any], Mapping[str, Any]] | None = None
    """Returns the fields that a value sets, by path; None: `field` is set to the value."""


class Switch(NamedTuple):
    """A flag without a value that sets a field; other flags may not set the field, or fields in it,
    differently.
    """

    name: str
    field: str
    value: Any
    help: str


class Refused(NamedTuple):
    """A flag of other programs, and why castoff refuses it."""

    name: str
    why: str


Row = Flag | Switch | Refused

WANDB = (
    Flag("wandb_project", "logging.wandb.project", "NAME"),
    Flag("wandb_name", "logging.wandb.name", "NAME"),
    Switch("no_wandb", "logging.wandb", None, "Do not log to Weights & Biases, whatever CONFIG says."),
)


class Kind(NamedTuple):
    """A type of configuration that a system reads."""

    settings: type[msgspec.Struct]
    defaults: Mapping[str, Any] = {}
    """Defaults by field path that differ from those of `settings`."""


class CommandLine(NamedTuple):
    """The command line of a system: a configuration, and flags that set its fields."""

    system: str
    description: str
    table: tuple[Row, ...]
    kinds: Mapping[str, Kind]
    """The types of configuration, by name."""
    without: str
    """The help's text on running without CONFIG."""
    example: str
    """An example of a value for --set."""
    more: Callable[[argparse.ArgumentParser], object] = id
    """Adds flags that set no field."""
    own_words: Callable[[str], str] = str
    """Translates messages; see `run_on_rank`."""

    def parser(self, *, described: bool = True) -> argparse.ArgumentParser:
        """The parser with all flags; with `described`, their help is read from the fields' sources."""
        made = new_parser(self.system, self.description)
        made.description = self.own_words(made.description or "")
        made.add_argument("file", nargs="?", metavar="CONFIG", help=f"YAML of the training; {self.without}.")
        made.add_argument("--config", metavar="CONFIG", help="The same as CONFIG.")
        add_overrides(made, self.example)
        add_members(made)
        fields_of_kinds = {
            name: {at.path: at for at in fields(kind.settings)} for name, kind in self.kinds.items()
        }
        for row in self.table:
            if isinstance(row, Flag):
                by_kind = {name: at[row.field] for name, at in fields_of_kinds.items() if row.field in at}
                words = self._help(row, by_kind) if described else ""
                names = [option for name in (row.name, *row.also) for option in spelled(name)]
                made.add_argument(
                    *names, dest=row.name, metavar=row.metavar, help=words, **_value(row, by_kind)
                )
            elif isinstance(row, Switch):
                made.add_argument(*spelled(row.name), dest=row.name, action="store_true", help=row.help)
            else:
                hidden: Any = {"nargs": "?", "const": "", "help": argparse.SUPPRESS}
                made.add_argument(*spelled(row.name), dest=row.name, **hidden)
        self.more(made)
        return made

    def parsed(self, words: Sequence[str] | None = None) -> argparse.Namespace:
        """Parse and check the command line, without reading CONFIG; the result has its `path`.

        Exits if something is wrong.
        """
        words = sys.argv[1:] if words is None else words
        made = self.parser(described=not {"-h", "--help"}.isdisjoint(words))
        arguments = made.parse_args(words)
        for row in self.table:
            given = getattr(arguments, row.name)
            if isinstance(row, Refused) and given is not None:
                made.error(f"--{row.name} has no meaning here: {row.why}")
            if isinstance(row, Switch) and given and (beside := self._beside(row, arguments)):
                made.error(f"--{row.name} cannot be used with {' and '.join(beside)}; drop one of the two")
        if arguments.config is not None and arguments.file is not None:
            made.error(
                f"--config {arguments.config} and {arguments.file} are both given; drop one of the two"
            )
        arguments.path = arguments.file if arguments.config is None else arguments.config
        return arguments

    def from_flags(self, arguments: argparse.Namespace) -> dict[str, Any]:
        """The values that the flags set, by field path.

        Raises:
            ConfigError: a flag's value is not valid.
        """
        values: dict[str, Any] = {}
        for row in self.table:
            value = getattr(arguments, row.name)
            if isinstance(row, Switch) and value:
                values[row.field] = row.value
            elif isinstance(row, Flag) and value is not None:
                values |= row.sets(value) if row.sets else {row.field: value}
                values |= {row.drops: None} if row.drops else {}
        return values

    def _beside(self, switch: Switch, arguments: argparse.Namespace) -> list[str]:
        """The flags that set a switch's field differently."""
        others = [row for row in self.table if isinstance(row, Flag)]
        values = {row.name: getattr(arguments, row.name) for row in others if _is_in(row.field, switch.field)}
        return [f"--{name} {value}" for name, value in values.items() if value not in (None, switch.value)]

    def _help(self, flag: Flag, found: Mapping[str, Field]) -> str:
        words = [flag.help or self._meaning({name: at.meaning for name, at in found.items()})]
        words += [f"{flag.drops} of CONFIG is dropped."] if flag.drops else []
        defaults_of_kinds = {name: at.default for name, at in found.items()}
        for name, kind in self.kinds.items():
            defaults_of_kinds |= {name: kind.defaults[flag.field]} if flag.field in kind.defaults else {}
        shown = {name: value for name, value in defaults_of_kinds.items() if value not in _NOTHING}
        if shown and "Default: " not in flag.help:
            one = len(set(shown.values())) == 1
            defaults = (f"{value}" if one else f"{value} for {name}" for name, value in shown.items())
            words.append(f"Default: {', '.join(dict.fromkeys(defaults))}.")
        return " ".join(words).replace("%", "%%")

    def _meaning(self, words: Mapping[str, str]) -> str:
        """A field's help, with the type of configuration before it unless it is the same in all."""
        if words.keys() == self.kinds.keys() and len(set(words.values())) == 1:
            return next(iter(words.values()))
        return " ".join(f"[{name}] {text}" for name, text in words.items())


_NOTHING: tuple[Any, ...] = (None, msgspec.NODEFAULT, "", (), [])

Number = Annotated[int | float, takes("a number")]
"""Keeps int and float apart, so that a message shows the number as it was written."""


def typed(kind: Any) -> Callable[[str], Any]:
    """A function that converts a flag's text to a field type."""

    def read(text: str) -> Any:
        try:
            return msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            raise argparse.ArgumentTypeError(f"is {text!r}, but takes {allowed(kind)}") from None

    return read


def spelled(name: str) -> Iterable[str]:
    """The spellings of a flag, with _ and with -."""
    return dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])


def _value(flag: Flag, found: Mapping[str, Field]) -> dict[str, Any]:
    """The arguments for argparse that describe a flag's value. The configuration checks a number's limits."""
    options = [
        bare(member) for at in found.values() for member in members(bare(at.type)) if member is not NoneType
    ]
    arguments: dict[str, Any] = {}
    if options and get_origin(options[0]) in (tuple, list):
        arguments["nargs"] = "+"
        options = [bare(get_args(options[0])[0])]
    words = [word for option in options if get_origin(option) is Literal for word in get_args(option)]
    if choices := flag.choices or list(dict.fromkeys(words)):
        return arguments | {"choices": choices}
    plain = str if str in options or not options else Number if options[0] is float else options[0]
    return arguments | {"type": flag.type or typed(plain)}


def _is_in(path: str, other: str) -> bool:
    """Whether `path` is the field `other`, or a field in it."""
    return f"{path}.".startswith(f"{other}.")
