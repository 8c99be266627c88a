"""Completions for a shell: runs, sites, machines, fields, and the options that use them.

The user waits for each `complete_…`, so each imports only what it needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_origin

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])
_Items: TypeAlias = "list[CompletionItem[str]]"

_PLAIN = re.compile(r"\w[\w.+%/-]*")
"""Words that need no quotes in any shell and are not flags."""


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> _Items:
    """Complete a run: names of the newest 50 runs and of groups, ids if the word has begun, or folders if
    it is a path.
    """
    from castoff.launcher.runs.groups import name_of_group
    from castoff.launcher.runs.index import Index

    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [_item(incomplete, type="dir")]
    seen = {*(context.params.get(parameter.name or "") or ())}
    index = Index.of(os.environ)
    groups = dict.fromkeys(map(name_of_group, index.groups.ids()[:50]))
    offered = [name for name in groups if name.startswith(incomplete) and name not in seen]
    seen |= groups.keys()
    for entry in reversed(index.entries()):
        for word in [entry.name, entry.id] if incomplete else [entry.name]:
            if word not in seen and word.startswith(incomplete) and _PLAIN.fullmatch(word):
                seen.add(word)
                offered += [word] if entry.is_there else []
        if len(offered) >= 50:
            break
    return _items(incomplete, offered)


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
    from castoff.launcher.errors import CastoffError
    from castoff.launcher.runs.index import Index
    from castoff.launcher.runs.parameters import parameters_of

    runs = [word for word in context.params.get("runs") or () if "=" not in word]
    index, run = Index.of(os.environ), context.params.get("run") or next(reversed(runs), None)
    try:
        table = parameters_of(index.find(run) if run else index.newest()).parameters
    except CastoffError:
        return []
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
