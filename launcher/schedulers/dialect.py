"""A scheduler's directives: its table of fields, its syntax, and a job's directives, ready to quote. Pure.

A job's stand in four layers, the later wins: castoff's defaults, the site's directives, what the job file's
typed fields ask for, and its `directives:`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, get_args

import msgspec

from castoff.launcher.config.array_indices import index_list
from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Condition
from castoff.launcher.schedulers.table import Job, NoField, Row, names

Directives: TypeAlias = "list[tuple[str, str | bool]]"
Layer: TypeAlias = "list[tuple[str, str | bool | None]]"

_JOB_ID = re.compile(r"[0-9]+(_[0-9]+|\[[0-9]*\])?(\.[A-Za-z0-9.-]+)?")
"""A job's id: 123, 123_4, 123.host, 123[].host."""


class Dialect(msgspec.Struct, frozen=True):
    """What a scheduler's directives may be."""

    fields: tuple[Row, ...]
    """Which directives say a job's fields, in the order of a script."""
    needed: Mapping[str, str]
    """Those that may be changed but not removed, and why."""
    line: Callable[[str, str | bool], str]
    """How it is written into a script."""
    refused: Mapping[str, str] = {}
    """Those that no job may have, and why."""
    sizes: frozenset[str] = frozenset()
    """Those that say how many nodes, tasks, cores and devices there are, and how tasks share these."""
    streams: frozenset[str] = frozenset()
    """Those that say where a job's output goes."""
    own_to_scripts: frozenset[str] = frozenset()
    """Others that a job with a `script` may have, though a field says them in other jobs."""
    has_letters: bool = False
    """Whether a letter is a name of its own, and not short for another."""

    @property
    def owned(self) -> dict[str, str]:
        """The directives that castoff decides from a field, because the rest of the script depends on it."""
        return names(self.fields, "owned")

    @property
    def said_by_fields(self) -> dict[str, str]:
        """These, and those by which castoff knows what the job asks for, and checks it."""
        return {**self.owned, **names(self.fields, "typed")}

    def row(self, directive: str) -> Row | None:
        """That of a directive, if its text is a field's."""
        return next((row for row in self.fields if row.directive == directive and row.value), None)

    def beyond(self, directive: str, value: str | bool) -> bool:
        """Whether a typed directive says what its field cannot hold."""
        row = self.row(directive)
        try:
            if row and row.rule == "typed":
                row.read(value)
        except NoField:
            return True
        except ValueError:
            return False
        return False


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


def says_its_size(spec: JobSpec, dialect: Dialect, scheduler: str) -> bool:
    """Whether a job with a script has its size from its own directives alone, or from no word at all."""
    fields = (spec.nodes, spec.cores_per_rank, spec.devices_per_rank, spec.memory, spec.exclusive)
    given = {*of_scheduler(spec.directives, scheduler)}
    return spec.script is not None and bool(given & dialect.sizes or not any((*fields, spec.select)))


def layered(dialect: Dialect, job: Job) -> Directives:
    """castoff's own, under the site's, under those that fields ask for, under the job's `directives:`.

    In the table's order, and then as they are given. castoff adds nothing to what a script's own directives
    say.
    """
    spec, site = job.spec, job.site
    asked: Layer = [(row.directive, row.said(job)) for row in dialect.fields if not row.is_default]
    own: Layer = [(row.directive, row.said(job)) for row in dialect.fields if row.is_default]
    if spec.script is not None:
        left = dialect.streams | (
            dialect.sizes if says_its_size(spec, dialect, site.scheduler) else frozenset()
        )
        asked, own = ([one for one in layer if one[0] not in left] for layer in (asked, own))
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


def array_words(job: Job) -> str | None:
    """An array's indices, as sbatch takes them; None: no array."""
    array = job.spec.array
    if array is None:
        return None
    span = index_list(array.members)
    return f"{span}%{array.max_concurrent}" if array.max_concurrent else span


def array_of(text: str) -> dict[str, Any]:
    """The field `array` of indices as sbatch and qsub take them.

    Raises:
        ValueError: they are none.
    """
    indices, _, most = text.partition("%")
    if not re.fullmatch(r"\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*", indices):
        raise ValueError("are no indices")
    concurrent = {"max_concurrent": int(most)} if most.isdecimal() and int(most) else {}
    return {"indices": indices, **concurrent}


def after_of(text: str) -> dict[str, list[str]]:
    """The field `after` of a dependency in the words that Slurm and PBS share.

    Raises:
        ValueError: it waits for something else.
    """
    after: dict[str, list[str]] = {}
    for part in text.split(","):
        condition, *jobs = part.split(":")
        if condition not in get_args(Condition) or not jobs or "?" in text:
            raise ValueError("is more than `after` knows: after, afterok, afternotok and afterany of job ids")
        after.setdefault(condition, []).extend(job.partition("+")[0] for job in jobs)
    return after
