"""Directives as ordered names and values, ready to quote; each scheduler's folder has its own.

Four layers, the later wins: castoff's defaults, the site's directives, what the job file's typed
fields ask for, and its `directives:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from launcher.config.job import Directive, JobSpec
from launcher.config.quantities import cpulist
from launcher.config.site import Site

Directives: TypeAlias = "list[tuple[str, str | bool]]"
Layer: TypeAlias = "list[tuple[str, str | bool | None]]"
Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"

_JOB_ID = re.compile(r"[0-9]+(_[0-9]+|\[[0-9]*\])?(\.[A-Za-z0-9.-]+)?")
"""A job's id: 123, 123_4, 123.host, 123[].host."""


class Resources(NamedTuple):
    """What the directives need to know of a plan's decisions."""

    name: str
    nodes: int
    tasks_per_node: int
    cores_per_task: int | None
    devices_per_task: int
    devices_per_node: int
    whole_nodes: bool
    """Whether the job has its nodes for itself, with all their devices."""
    walltime: int | None
    """Seconds."""
    grace: int
    """Seconds."""
    after: str | None
    """A dependency of scheduler ids alone, in the scheduler's words."""


def of_scheduler(given: Given, scheduler: str) -> dict[str, Directive]:
    """Those that apply there: what stands under no scheduler's name, and what stands under its own."""
    plain = {name: value for name, value in given.items() if not isinstance(value, dict)}
    plain.pop(scheduler, None)  # an empty section
    return plain | section(given, scheduler)


def section(given: Given, scheduler: str) -> dict[str, Directive]:
    """What stands under a scheduler's name."""
    found = given.get(scheduler)
    return found if isinstance(found, dict) else {}


def is_job_id(name: str) -> bool:
    """Whether a word is an id as schedulers give them."""
    return _JOB_ID.fullmatch(name) is not None


def dependency(after: Mapping[Any, list[str]]) -> str | None:
    """`after` in a dependency's words, where every entry is a scheduler's id.

    A run's name is resolved at submission, so then the whole dependency is an argument there.
    """
    known = after and all(is_job_id(name) for names in after.values() for name in names)
    return dependency_words(after) if known else None


def dependency_words(after: Mapping[Any, list[str]]) -> str:
    """The jobs of each condition in the words that Slurm and PBS share."""
    return ",".join(":".join([condition, *names]) for condition, names in after.items())


def own_dependency(decided: Directives) -> str | None:
    """What a script's own directive waits for, in the words that Slurm and PBS share; None: nothing."""
    found = next((str(value) for name, value in decided if name in ("dependency", "W")), None)
    return None if found is None else found.removeprefix("depend=")


def layered(order: list[str], own: Layer, site: Site, asked: Layer, spec: JobSpec) -> Directives:
    """castoff's own, under the site's, under those that fields ask for, under the job's `directives:`."""
    merged: dict[str, str | bool] = {}
    wanted = [(name, value) for name, value in asked if value is not None]
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for name, value in (*own, *of_site.items(), *wanted, *of_job.items()):
        if value is None or value is False:
            merged.pop(name, None)
        else:
            merged[name] = value
    first = [(name, merged.pop(name)) for name in order if name in merged]
    return [*first, *merged.items()]


def array_words(spec: JobSpec) -> str | None:
    """An array's indices, as sbatch and qsub both take them; None: no array."""
    if spec.array is None:
        return None
    span = cpulist(range(spec.array.count))
    return f"{span}%{spec.array.at_most}" if spec.array.at_most else span


def text(number: int | None) -> str | None:
    """A number as a directive's value."""
    return None if number is None else str(number)
