"""Directives as ordered names and values, ready to quote, and what `directives:` may hold. Pure.

Each scheduler's folder has its own, in four layers, the later wins: castoff's defaults, the site's
directives, what the job file's typed fields ask for, and its `directives:`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from launcher.config import job
from launcher.config.document import did_you_mean
from launcher.config.job import Directive, JobSpec
from launcher.config.quantities import cpulist
from launcher.config.site import Site, Values
from launcher.errors import shown
from launcher.launchers.commands import Request
from launcher.schedulers.base import Dialect
from launcher.schedulers.registry import scheduler_of, with_directives

Directives: TypeAlias = "list[tuple[str, str | bool]]"
Layer: TypeAlias = "list[tuple[str, str | bool | None]]"
Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"

_JOB_ID = re.compile(r"[0-9]+(_[0-9]+|\[[0-9]*\])?(\.[A-Za-z0-9.-]+)?")
"""A job's id: 123, 123_4, 123.host, 123[].host."""


def of_scheduler(given: Given, scheduler: str) -> dict[str, Directive]:
    """Those that apply there: what stands under no scheduler's name, and what stands under its own."""
    plain = {name: value for name, value in given.items() if not isinstance(value, dict)}
    plain.pop(scheduler, None)  # an empty section
    return plain | section(given, scheduler)


def section(given: Given, scheduler: str) -> dict[str, Directive]:
    """What is listed under a scheduler's name."""
    found = given.get(scheduler)
    return found if isinstance(found, dict) else {}


def is_job_id(name: str) -> bool:
    """Whether a word is an id as schedulers give them."""
    return _JOB_ID.fullmatch(name) is not None


def own_dependency(after: Mapping[Any, list[str]]) -> str | None:
    """What a script's own directive waits for: `after` in its words, where every entry is a scheduler's id.

    A run's name is resolved at submission, so then the whole dependency is an argument there.
    """
    known = after and all(is_job_id(name) for names in after.values() for name in names)
    return dependency_words(after) if known else None


def dependency_words(after: Mapping[Any, list[str]]) -> str:
    """The jobs of each condition in the words that Slurm and PBS share."""
    return ",".join(":".join([condition, *names]) for condition, names in after.items())


def layered(asked: Layer, own: Layer, site: Site, spec: JobSpec) -> Directives:
    """castoff's own, under the site's, under those that fields ask for, under the job's `directives:`.

    In the order of `asked` and `own`, and then as they are given.
    """
    merged: dict[str, str | bool] = {}
    wanted = [(name, value) for name, value in asked if value is not None]
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for name, value in (*own, *of_site.items(), *wanted, *of_job.items()):
        if value is None or value is False:
            merged.pop(name, None)
        else:
            merged[name] = value
    first = [(name, merged.pop(name)) for name, _ in (*asked, *own) if name in merged]
    return [*first, *merged.items()]


def array_words(spec: JobSpec) -> str | None:
    """An array's indices, as sbatch and qsub both take them; None: no array."""
    if spec.array is None:
        return None
    span = cpulist(range(spec.array.count))
    return f"{span}%{spec.array.max_concurrent}" if spec.array.max_concurrent else span


def merged(default: Given, given: Given, scheduler: str) -> job.Directives:
    """One job's directives over another's: those of this scheduler together, the others in their sections."""
    together: job.Directives = {**of_scheduler(default, scheduler), **of_scheduler(given, scheduler)}
    for name in (one.name for one in with_directives()):
        theirs = {**section(default, name), **section(given, name)}
        if theirs and name != scheduler:
            together[name] = theirs
    return together


def place(field: str, given: Given, scheduler: str) -> str:
    """A problem's field as the job spells it: `directives.k` is `directives.pbs.k` if it stands there."""
    outer, _, name = field.partition(".")
    here = outer == "directives" and name in section(given, scheduler)
    return f"{outer}.{scheduler}.{name}" if here else field


def section_problems(directives: job.Directives) -> Iterator[tuple[str, str]]:
    """Directives where a scheduler's name belongs, and the other way round."""
    known = {one.name: one.title for one in with_directives()}
    for name, value in directives.items():
        if isinstance(value, dict):
            if name not in known:
                yield f"directives.{name}", f"holds directives, but only {', '.join(known)} hold their own"
            for twice in sorted({*value} & {*directives}):
                yield f"directives.{name}.{twice}", f"appears in directives.{twice} too; keep one of the two"
        elif value is not None and name in known:
            example = f"{name}: {{comment: {value}}}"
            message = f"is {shown(value)}, but {name} holds {known[name]}'s own directives"
            yield f"directives.{name}", f"{message} by their names, as in {example}"


def directive_problems(
    given: Given, spec: JobSpec, site: Site, request: Request, *, of_site: bool = False
) -> Iterator[tuple[str, str]]:
    """What of a job's directives, or of its site's, cannot be written in a script, or contradicts the job."""
    own = scheduler_of(site.scheduler)
    if own.dialect is None:
        return
    follows = {name: f"it follows from {field}" for name, field in own.dialect.owned.items()}
    needed = {**follows, **own.dialect.needed}
    bare = dict(own.directives(replace(spec, directives={}), replace(site, directives={}), request))
    for name, value in of_scheduler(given, own.name).items():
        if value is not None and value is not False:
            message = _wrong(name, value, own.dialect, "defaults." if of_site else "")
        else:
            message = f"cannot be removed: {needed[name]}" if name in bare and name in needed else None
        if message is None and isinstance(value, str) and name in site.directive_values:
            message = _not_among(value, site.directive_values[name], site)
        if message is not None:
            yield f"directives.{name}", message


def _wrong(name: str, value: str | bool, dialect: Dialect, under: str) -> str | None:
    """What is wrong with one; `under` says where its document has the job's fields, as in `defaults.`"""
    if len(name) == 1 and not dialect.has_letters:
        return "is a short flag; write the long one, as in nodelist for w"
    fields = {**dialect.owned, **dialect.typed}
    # To getopt_long(3) the beginning of a word will do, and PBS does not tell capitals from small letters.
    words = sorted([*fields, *dialect.needed, *dialect.refused], key=len)
    begins = (word for word in words if word.startswith(name.lower()) and len(name) > 1)
    meant = next(begins, name)
    stands = "" if meant == name else f"is short for {meant}, which "
    if meant in fields and not dialect.beyond(meant, value):
        return f"{stands}follows from other fields; set {under}{fields[meant]} instead"
    if meant in dialect.refused:
        return stands + dialect.refused[meant]
    if stands:
        return f"is short for {meant}; write it in full"
    try:
        dialect.line(name, value)
    except ValueError as error:
        return str(error).removeprefix(f"directives.{name}: ")
    return None


def _not_among(value: str, known: Values, site: Site) -> str | None:
    wrong = known.wrong(value)
    if not wrong:
        return None
    source = f"({known.source}, {known.date})"
    if len(known.among) == 1:
        return f"is {shown(value)}, but {site.name} takes {known.among[0]} alone {source}: drop it"
    hint = did_you_mean(wrong[0], known.among)
    join = f", joined by {known.separator}" if known.separator else ""
    there = f"there are: {', '.join(known.among)}{join} {source}"
    newer = f"; one that is newer: directive_values in a profile that extends {site.name}"
    return f"is {shown(value)}, but {site.name} has no {shown(wrong[0])}{hint}; {there}{newer}"
