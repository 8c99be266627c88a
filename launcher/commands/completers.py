"""What a shell may offer for an argument: runs, ranks, sites, job files, fields.

Each is a `shell_complete` of click's. They answer while somebody waits for a key, so they load what
they need and no more. What a shell would not take as it is, is not offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from launcher.runs import Run

_PLAIN = re.compile(r"\w[\w.+%/-]*")
"""Words that mean themselves in every shell, and that are no flags."""

_MOST = 50
"""So many runs are offered, the newest first."""


def complete_runs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of runs, the newest first, and ids once a word has begun; folders where it is a path."""
    if "/" in incomplete or incomplete.startswith((".", "~")):
        return [_item(incomplete, type="dir")]
    given = context.params.get(parameter.name or "") or ()
    offered = (word for word in _references(incomplete) if word not in given)
    return [_item(word) for word in islice(offered, _MOST)]


def _references(begun: str) -> Iterator[str]:
    from launcher.index import Index

    seen: set[str] = set()
    for entry in reversed(Index.of(os.environ).entries()):
        words = [entry.name, entry.id] if begun else [entry.name]
        for word in words:
            if word not in seen and word.startswith(begun) and _PLAIN.fullmatch(word):
                seen.add(word)
                if entry.is_there:
                    yield word


def complete_members(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The members of the run that is named, as far as they began."""
    return _numbers(incomplete, (member for member, _, _ in _run(context).attempts()))


def complete_attempts(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The attempts of the members that are named, else of all."""
    named = context.params.get("members") or ()
    attempts = _run(context).attempts()
    return _numbers(incomplete, (attempt for each, attempt, _ in attempts if not named or each in named))


def complete_ranks(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The ranks that have a log."""
    logs = _run(context).logs.glob("*/rank-*.log")
    return _numbers(incomplete, (int(path.stem[5:]) for path in logs if path.stem[5:].isdecimal()))


def _run(context: click.Context) -> Run:
    from launcher.index import Index

    # An option whose value is being typed keeps click from seeing the arguments before it.
    words = [context.params.get("run"), *context.args, ""]
    return Index.of(os.environ).find(next(word for word in words if word is not None))


def _numbers(begun: str, numbers: Iterable[int]) -> list[CompletionItem[str]]:
    return [_item(str(number)) for number in sorted(set(numbers)) if str(number).startswith(begun)]


def complete_sites(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The names of all profiles."""
    from launcher.site import Search

    names = Search.here().profiles()
    return [_item(name) for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def complete_job_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """YAML files, and folders that may hold some; any file if there are none, or their names are odd."""
    folder, slash, begun = incomplete.rpartition("/")
    found = []
    for path in sorted(Path(folder + slash or ".").glob("*")) if not incomplete.startswith("~") else []:
        if path.name.startswith(begun) and (begun.startswith(".") or not path.name.startswith(".")):
            word = folder + slash + path.name
            if path.is_dir():
                found.append(_item(f"{word}/", type="open"))
            elif path.suffix in (".yaml", ".yml"):
                found.append(_item(word))
    plain = all(_PLAIN.fullmatch(item.value.removeprefix("../").removeprefix("/")) for item in found)
    return found if found and plain else [_item(incomplete, type="file")]


def complete_fields(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """The fields of a job file as `--set` names them: `nodes=`, `array.count=`, `env.`."""
    from launcher.spec import JobSpec

    names = () if "=" in incomplete else _fields(JobSpec)
    return [_item(name, type="open") for name in names if name.startswith(incomplete)]


def _fields(kind: Any, prefix: str = "") -> Iterator[str]:
    """`name=` for a field, `name.` for one that holds names of the user's."""
    import msgspec

    # Not of each field's own type: msgspec 0.22 frees what it made of `directives` twice.
    struct = msgspec.inspect.type_info(kind)
    assert isinstance(struct, msgspec.inspect.StructType)
    for field in struct.fields:
        name, about = field.encode_name, field.type
        while isinstance(about, msgspec.inspect.Metadata):
            about = about.type
        options = about.types if isinstance(about, msgspec.inspect.UnionType) else (about,)
        inner = [option.cls for option in options if isinstance(option, msgspec.inspect.StructType)]
        if any(isinstance(option, msgspec.inspect.DictType) for option in options):
            yield f"{prefix}{name}."
        if not inner or len(options) > 2:
            yield f"{prefix}{name}="
        for other in inner:
            yield from _fields(other, f"{prefix}{name}.")


def _item(value: str, type: str = "plain") -> CompletionItem[str]:
    from click.shell_completion import CompletionItem

    return CompletionItem(value, type=type)
