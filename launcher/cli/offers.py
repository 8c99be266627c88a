"""Completions for a shell: runs, sites, machines, fields, and the options that use them.

The user waits for each `complete_…`, so each imports only what it needs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_origin

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from castoff.launcher.runs.index import Entry
    from castoff.launcher.runs.run import RunDirectory

F = TypeVar("F", bound=Callable[..., Any])
_Items: TypeAlias = "list[CompletionItem[str]]"

_MOST = 50
"""Limit of runs that are offered."""

_PATIENCE = 0.3
"""Seconds for reading the records of runs, or what programs reported."""

_MEMBERS = 3
"""Limit of an array's members whose metrics are read."""

_PLAIN = re.compile(r"\w[\w.+%/-]*")
"""Words that need no quotes in any shell and are not flags."""


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a run: names of the newest 50 runs and of groups, ids if the word has begun, or folders if
    it is a path.
    """
    from castoff.launcher.runs.groups import name_of_group
    from castoff.launcher.runs.index import Index

    if _is_path(incomplete):
        return [_item(incomplete, type="dir")]
    seen = {*(context.params.get(parameter.name or "") or ())}
    index = Index.of(os.environ)
    groups = dict.fromkeys(map(name_of_group, index.groups.ids()[:_MOST]))
    offered = [name for name in groups if name.startswith(incomplete) and name not in seen]
    seen |= groups.keys()
    for entry in reversed(index.entries()):
        for word in [entry.name, entry.id] if incomplete else [entry.name]:
            if word not in seen and word.startswith(incomplete) and _PLAIN.fullmatch(word):
                seen.add(word)
                offered += [word] if entry.is_there else []
        if len(offered) >= _MOST:
            break
    return _items(incomplete, offered)


def _is_path(incomplete: str) -> bool:
    return "/" in incomplete or incomplete.startswith((".", "~"))


def complete_active_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a run that is not over."""
    return _runs_in(("pending", "running"), context, parameter, incomplete)


def complete_running_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a run that is running."""
    return _runs_in(("running",), context, parameter, incomplete)


def _runs_in(
    states: Sequence[str], context: click.Context, parameter: click.Parameter, incomplete: str
) -> _Items:
    """Complete a run in one of these states, or its group. An id is offered if the name means a newer run."""
    from castoff.launcher.runs.groups import name_of_group
    from castoff.launcher.runs.index import Index

    if _is_path(incomplete):
        return [_item(incomplete, type="dir")]
    given, names = {*(context.params.get(parameter.name or "") or ())}, set[str]()
    offered: dict[str, None] = {}
    give_up = time.monotonic() + _PATIENCE
    for entry in reversed(Index.of(os.environ).entries()):
        if not entry.is_there:
            continue
        words = [entry.id] if entry.name in names else [entry.name, *([entry.id] if incomplete else [])]
        names.add(entry.name)
        words += [name_of_group(entry.group)] if entry.group else []
        words = [word for word in words if word.startswith(incomplete) and _PLAIN.fullmatch(word)]
        if words and entry.ended is None and given.isdisjoint((entry.name, entry.id)):
            if time.monotonic() >= give_up or _state_of(entry) in states:
                offered |= dict.fromkeys(words)
            if len(offered) >= _MOST:
                break
    return _items(incomplete, offered)


def _state_of(entry: Entry) -> str:
    """The state of a run according to its records; no scheduler is asked."""
    from castoff.launcher.errors import CastoffError
    from castoff.launcher.status.survey import RunRecords
    from castoff.launcher.status.watch import judge

    try:
        records = RunRecords(entry.run)
        if not (records.queued and records.needs_queue()):
            return judge([records])[0].state
    except CastoffError:  # its directory is not trusted, or a record is damaged
        return "unknown"
    return "running" if any(found[-1].end is None for found in records.attempts.values()) else "pending"


def complete_metrics(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a metric that the run's first members have reported."""
    from castoff.launcher.history.reading import MetricsReader, metrics_files

    give_up, names = time.monotonic() + _PATIENCE, dict[str, None]()
    if run := _run_named(context):
        for member in run.facts().members[:_MEMBERS]:
            names |= dict.fromkeys(MetricsReader().look(metrics_files(run, member), give_up).names)
    return _items(incomplete, filter(_PLAIN.fullmatch, names))


def complete_sites(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a site: the names of all profiles."""
    from castoff.launcher.config.site import Search

    return _items(incomplete, filter(_PLAIN.fullmatch, Search.here().profiles()))


def complete_machines(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a machine of `castoff on`."""
    from castoff.launcher.remote.entries import entries

    return _items(incomplete, entries(os.environ))


def complete_parameters(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a parameter of a run's members, `lr=`, and then its values."""
    from castoff.launcher.runs.parameters import parameters_of

    run = _run_named(context)
    table = parameters_of(run).parameters if run else None
    name, equals, _ = incomplete.partition("=")
    names = table.names if table else []
    values = table.values_of(name) if table and name in names else []
    words = [f"{name}={value}" for value in values if _PLAIN.fullmatch(value)]
    return _items(incomplete, words if equals else [f"{one}=" for one in names])


def complete_runs_and_parameters(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> _Items:
    """Complete a run, or a parameter of the members of the run before."""
    runs = complete_runs(context, parameter, incomplete)
    return [*runs, *complete_parameters(context, parameter, incomplete)]


def _run_named(context: click.Context) -> RunDirectory | None:
    """The last run that the command line names so far, else the newest; None: there is none."""
    from castoff.launcher.errors import CastoffError
    from castoff.launcher.runs.index import Index

    # Where the word to complete is an option's value, click leaves the arguments before it in `args`.
    named = [context.params.get("run"), *(context.params.get("runs") or ()), *context.args]
    index, runs = Index.of(os.environ), [word for word in named if word and "=" not in word]
    try:
        return index.find(runs[-1]) if runs else index.newest()
    except CastoffError:
        return None


def complete_fields(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a field of a job file as `--set` takes it: `nodes=`, `array.count=`, `env.`."""
    from castoff.launcher.config.job import JobSpec

    return _items(incomplete, [] if "=" in incomplete else _fields(JobSpec))


def _fields(kind: Any, prefix: str = "") -> Iterator[str]:
    """`name=` for each field, and `name.` for each field whose keys the user chooses."""
    from castoff.launcher.typed.structure import bare, fields_of, is_struct, members

    for name, field in fields_of(kind).items():
        options = [bare(option) for option in members(bare(field.type))]
        inner = [option for option in options if is_struct(option)]
        if any(get_origin(option) is dict for option in options):
            yield f"{prefix}{name}."
        if not inner or len(options) > 2:
            yield f"{prefix}{name}="
        for other in inner:
            yield from _fields(other, f"{prefix}{name}.")


def _items(incomplete: str, words: Iterable[str]) -> _Items:
    return [_item(word) for word in words if word.startswith(incomplete)]


def _item(word: str, **more: str) -> CompletionItem[str]:
    from click.shell_completion import CompletionItem  # late: only completion needs it

    return CompletionItem(word, **more)


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Set any field, as in env.A=1.",
    shell_complete=complete_fields,
)


def site_option(words: str) -> Callable[[F], F]:
    """Add --site."""
    return click.option("--site", "site_name", help=words, shell_complete=complete_sites)
