"""A scheduler's directives: their table of fields, their syntax, and the merging of a job's directives. Pure.

A job's directives come from four layers, of which later layers win: castoff's defaults, the site's
directives, the typed fields of the job file, and the job file's `directives:`.
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
"""Job ids, such as 123, 123_4, 123.host or 123[].host."""


class Dialect(msgspec.Struct, frozen=True):
    """The directives of a scheduler: their fields, their syntax, and which of them a job may set."""

    fields: tuple[Row, ...]
    """The directives for a job's fields, in the order in which scripts contain them."""
    needed: Mapping[str, str]
    """Directives that may be changed but not removed, each with the reason."""
    line: Callable[[str, str | bool], str]
    """Writes a directive as it follows the mark in a script, such as `--nodes=2`."""
    refused: Mapping[str, str] = {}
    """Directives that no job may set, each with the reason."""
    sizes: frozenset[str] = frozenset()
    """Directives for the numbers of nodes, tasks, cores and devices, and for how tasks share them."""
    streams: frozenset[str] = frozenset()
    """Directives for where a job's output goes."""
    own_to_scripts: frozenset[str] = frozenset()
    """Additional directives that jobs with a `script` may set; in other jobs, fields set them."""
    has_letters: bool = False
    """Whether a one-letter name is a directive itself, and not short for a longer name."""

    @property
    def owned(self) -> dict[str, str]:
        """Directives that castoff derives from a field, since the rest of the script depends on them."""
        return names(self.fields, "owned")

    @property
    def said_by_fields(self) -> dict[str, str]:
        """The directives that castoff owns or reads to know what the job requests, each with its field."""
        return {**self.owned, **names(self.fields, "typed")}

    def row(self, directive: str) -> Row | None:
        """Return the row of a directive if the row can read the directive's text; otherwise None."""
        return next((row for row in self.fields if row.directive == directive and row.value), None)

    def beyond(self, directive: str, value: str | bool) -> bool:
        """Whether a directive of a typed field has a value that the field cannot hold."""
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
    """Whether a text has the form of a scheduler's job id."""
    return _JOB_ID.fullmatch(name) is not None


def own_dependency(after: Mapping[Any, list[str]]) -> str | None:
    """Return `after` as a dependency for a directive of the script; None unless every entry is a job id.

    Names of runs are resolved at submission, which then passes the whole dependency as an argument.
    """
    all_ids = after and all(is_job_id(name) for names in after.values() for name in names)
    return dependency_words(after) if all_ids else None


def dependency_words(after: Mapping[Any, list[str]]) -> str:
    """Write the jobs of each condition in the syntax that Slurm and PBS share: `afterok:1:2,after:3`."""
    return ",".join(":".join([condition, *names]) for condition, names in after.items())


def says_its_size(spec: JobSpec, dialect: Dialect, scheduler: str) -> bool:
    """Whether a job with a script takes its size from its own directives only, or requests no size."""
    fields = (spec.nodes, spec.cores_per_rank, spec.devices_per_rank, spec.memory, spec.exclusive)
    raw = {*of_scheduler(spec.directives, scheduler)}
    return spec.script is not None and bool(raw & dialect.sizes or not any((*fields, spec.select)))


def layered(dialect: Dialect, job: Job) -> Directives:
    """Merge a job's directives, of which later layers win: castoff's, the site's, the fields', the job's.

    The result is in the order of the table, then in the given order. If the job has a `script`, castoff adds
    no directives for sizes and streams to the job's own.
    """
    spec, site = job.spec, job.site
    from_fields: Layer = [(row.directive, row.said(job)) for row in dialect.fields if not row.is_default]
    defaults: Layer = [(row.directive, row.said(job)) for row in dialect.fields if row.is_default]
    if spec.script is not None:
        script_only = dialect.streams | (
            dialect.sizes if says_its_size(spec, dialect, site.scheduler) else frozenset()
        )
        from_fields, defaults = (
            [entry for entry in layer if entry[0] not in script_only] for layer in (from_fields, defaults)
        )
    merged: dict[str, str | bool] = {}
    wanted = [(name, value) for name, value in from_fields if value is not None]
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for name, value in (*defaults, *of_site.items(), *wanted, *of_job.items()):
        if value is None or value is False:
            merged.pop(name, None)
        else:
            merged[name] = value
    first = [(name, merged.pop(name)) for name, _ in (*from_fields, *defaults) if name in merged]
    return [*first, *merged.items()]


def array_words(job: Job) -> str | None:
    """Write an array's indices in sbatch's syntax; None: no array."""
    array = job.spec.array
    if array is None:
        return None
    span = index_list(array.members)
    return f"{span}%{array.max_concurrent}" if array.max_concurrent else span


def array_of(text: str) -> dict[str, Any]:
    """Read the field `array` from indices in the syntax of sbatch and qsub.

    Raises:
        ValueError: the text does not contain indices.
    """
    indices, _, most = text.partition("%")
    if not re.fullmatch(r"\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*", indices):
        raise ValueError("are not indices")
    concurrent = {"max_concurrent": int(most)} if most.isdecimal() and int(most) else {}
    return {"indices": indices, **concurrent}


def after_of(text: str) -> dict[str, list[str]]:
    """Read the field `after` from a dependency in the syntax that Slurm and PBS share.

    Raises:
        ValueError: `after` cannot express the dependency.
    """
    after: dict[str, list[str]] = {}
    for part in text.split(","):
        condition, *jobs = part.split(":")
        if condition not in get_args(Condition) or not jobs or "?" in text:
            raise ValueError("is not one of after, afterok, afternotok and afterany with job ids")
        after.setdefault(condition, []).extend(job.partition("+")[0] for job in jobs)
    return after
