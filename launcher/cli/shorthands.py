"""Flags of sbatch that set fields below a job's plain ones: a row for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import click

from castoff.launcher.cli.offers import F, complete_runs
from castoff.launcher.text.quoting import visible_word

Fields: TypeAlias = "Iterator[tuple[str, Any]]"


class _Shorthand(NamedTuple):
    """A flag, and the fields that it sets, by their paths."""

    flags: tuple[str, ...]
    name: str
    metavar: str
    help: str
    fields: Callable[[Any], Fields]
    """Raises ValueError with what the flag takes instead."""
    is_repeated: bool = False
    completes: Callable[..., Any] | None = None


def _variables(words: tuple[str, ...]) -> Fields:
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"is {word!r}, but takes NAME=VALUE, as in --env {name or 'A'}=1")
        yield f"env.{name}", value


def _runs(words: tuple[str, ...]) -> Fields:
    for word in words:
        if re.match("after[a-z]*:", word):
            raise ValueError(
                f"is {word!r}, but takes a run or a job; here: --dependency {visible_word(word)}"
            )
        yield "after.afterok", [name for name in word.split(",") if name]


def _dependency(text: str) -> Fields:
    from castoff.launcher.schedulers.dialect import after_of

    try:
        after = after_of(text.replace(" ", ""))
    except ValueError:
        conditions = "after, afterok, afternotok, afterany or aftercorr"
        takes = f"takes {conditions} with jobs, as in --dependency afterok:12:13"
        is_run = re.fullmatch(r"(?!after|singleton)[\w.+-]+", text)
        run = f"; here: --after {text}" if is_run else ""
        raise ValueError(f"is {text!r}, but {takes}{run}") from None
    for condition, jobs in after.items():
        yield f"after.{condition}", jobs


def _indices(text: str) -> Fields:
    numbers, percent, at_once = text.partition("%")
    yield "array.indices", numbers
    if percent:
        if not at_once.isdecimal():
            raise ValueError(f"is {text!r}, but takes numbers, as in --array 0-7%2")
        yield "array.max_concurrent", int(at_once)


def _devices(text: str) -> Fields:
    kind, _, number = text.rpartition(":")
    if not number.isdecimal() or not int(number):
        raise ValueError(f"is {text!r}, but takes a number of GPUs, as in --gpus 4 or --gpus a100:4")
    yield "gpus", int(number)
    if kind:
        yield "device_type", kind


_SHORTHANDS = (
    _Shorthand(
        ("--env",),
        "variables",
        "NAME=VALUE",
        "Set a variable of the ranks; may be repeated.",
        _variables,
        True,
    ),
    _Shorthand(
        ("-a", "--array"), "indices", "INDICES", "Run an array, as 0-7, or 0-7%2 for 2 at a time.", _indices
    ),
    _Shorthand(
        ("--after",),
        "awaited",
        "RUN",
        "Wait until this run, or job of the scheduler, ends successfully; may be repeated.",
        _runs,
        True,
        complete_runs,
    ),
    _Shorthand(
        ("-d", "--dependency"),
        "dependency",
        "LIST",
        "Wait for jobs as in sbatch: afterok:12:13,afterany:14.",
        _dependency,
    ),
    _Shorthand(
        ("-G", "--gpus"),
        "gpus",
        "N",
        "GPUs in all, one for each rank, or N/n for each of -n ranks.",
        _devices,
    ),
)


def _given(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """None for an option that was not given, also if it may be repeated."""
    return None if value == () else value


def shorthand_options(function: F) -> F:
    """Add the flags."""
    for row in reversed(_SHORTHANDS):
        function = click.option(
            *row.flags,
            row.name,
            metavar=row.metavar,
            help=row.help,
            multiple=row.is_repeated,
            callback=_given,
            shell_complete=row.completes,
        )(function)
    return function


def without_shorthands(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags, with the fields that these set, by their paths, in place of these.

    Raises:
        click.UsageError: a flag's value cannot be read.
    """
    values = {name: value for name, value in flags.items() if value is not None}
    for row in _SHORTHANDS:
        value = values.pop(row.name, None)
        try:
            for path, given in () if value is None else row.fields(value):
                values[path] = [*values.get(path, []), *given] if isinstance(given, list) else given
        except ValueError as error:
            click.get_current_context().fail(f"{row.flags[-1]}: {error}")
    if (gpus := values.pop("gpus", None)) is not None:
        _share(gpus, values)
    return values


def _share(gpus: int, values: dict[str, Any]) -> None:
    """Give GPUs to the ranks that flags ask for; to as many ranks if no flag does."""
    asked = [str(values.get(name)) for name in ("ranks", "ranks_per_node", "nodes")]
    ranks, each, nodes = (int(count) if count.isdecimal() and int(count) else None for count in asked)
    if ranks is None and each is not None:
        ranks = each * (nodes or 1)
    if "devices_per_rank" in values:
        click.get_current_context().fail("--gpus excludes --devices-per-rank: drop one of the two")
    if ranks is None:
        values["ranks"] = ranks = gpus
    if gpus % ranks:
        click.get_current_context().fail(
            f"--gpus is {gpus}, which {ranks} ranks cannot share equally; use --devices-per-rank"
        )
    values["devices_per_rank"] = gpus // ranks
