"""Which fields of a job and of a profile a scheduler supports; all other fields are refused. Pure.

castoff itself handles some fields in the same way on every scheduler (`OF_EVERY_SCRIPT` and `OF_SITES`); each
scheduler lists the others that it supports (`Scheduler.handles`, `handles_of_site`). A field that is in no
list is refused everywhere, so that no new field is silently dropped. A field within another is named by its
path: `array.count`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.runs.plan import OF_EVERY_SCRIPT
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, scheduler_of
from castoff.launcher.schedulers.table import requests
from castoff.launcher.typed.structure import fields_of

OF_SITES = frozenset(
    {
        *("name", "description", "scheduler", "launcher", "extends", "shell", "mpiexec", "master_suffix"),
        *("env", "setup", "setup_last", "teardown", "example_setup", "local_storage", "defaults"),
        *("node.source", "node.date", "node.sockets", "node.reserved_cores", "node.devices", "node.memory"),
        *("node.device_variable", "node.device_cores", "node.ranks_per_device", "node.exclusive"),
        *("node.cpus_per_core", "node.device_names"),
        *("needs.source", "needs.date", "needs.options", "needs.because", "needs.programs"),
        *("needs.launcher_args", "needs.env", "needs.directives"),
        *("required.source", "required.date", "required.field", "required.because", "required.example"),
        *("options.source", "options.date", "options.description", "options.setup", "options.setup_last"),
        *("options.teardown", "options.env", "options.launcher_args", "options.reserved_cores"),
        *("options.ranks_per_node", "options.device_names", "options.excludes"),
    }
)
"""Profile fields that mean the same for every scheduler."""

OF_QUEUED_SITES = frozenset(
    {
        *("other_nodes.source", "other_nodes.date", "other_nodes.cores", "other_nodes.devices"),
        *("other_nodes.device_type", "other_nodes.memory", "other_nodes.queues"),
        *("queues.source", "queues.date", "queues.ranges.min_nodes", "queues.ranges.max_nodes"),
        *("queues.ranges.min_walltime", "queues.ranges.max_walltime", "queues.max_jobs"),
        *(
            "queues.max_devices",
            "queues.device_counts",
            "queues.exclusive",
            "queues.listed_as",
            "queues.submit_to",
            "queues.by_request",
            "other_queues",
            "default_queue",
            "queue_choice",
        ),
        *(
            "launcher_args",
            "submit_timeout",
            "poll_interval",
            "directives",
            "directive_values.source",
            "directive_values.date",
        ),
        *("directive_values.among", "directive_values.separator"),
    }
)
"""Profile fields that castoff checks or passes on for every scheduler that has queues and directives."""


class Given(msgspec.Struct, frozen=True):
    """A field whose value is not its default."""

    name: str
    """The field's path without keys of mappings and numbers of list items: `stage.to`."""
    place: str
    """The field's path with keys and numbers, as messages show it: `stage.0.to`."""


def given(fields: msgspec.Struct) -> Iterator[Given]:
    """Yield the fields that a job or a profile sets, down to fields that contain no other fields."""
    for name, field in fields_of(type(fields)).items():
        value = getattr(fields, field.name)
        if value == field.default or (not value and field.default_factory is not msgspec.NODEFAULT):
            continue
        if value in (False, 0) and field.default is None:  # such as `spare_nodes: 0`, which requests nothing
            continue
        below = [
            Given(f"{name}.{field_within.name}", f"{name}{key}.{field_within.place}")
            for key, inner in _within(value)
            for field_within in given(inner)
        ]
        yield from below or [Given(name, name)]


def _within(value: object) -> Iterator[tuple[str, msgspec.Struct]]:
    """Yield the structs in a value, with their keys, except a site's `defaults`, which are checked as
    a job.
    """
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, msgspec.Struct) and not isinstance(value, JobSpec):
        yield "", value
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    yield from ((f".{key}", item) for key, item in items if isinstance(item, msgspec.Struct))


def launcher_named(spec: JobSpec, site: Site, scheduler: Scheduler) -> LauncherName:
    """Return the job's launcher, or else the site's. Without a queue, launchers that need one are skipped."""
    name = spec.launcher.name
    counts = scheduler.has_queue or name in scheduler.launchers
    return name if name and counts else site.launcher


def without_effect(scheduler: Scheduler) -> frozenset[str]:
    """Return the job fields that the scheduler accepts although they have no effect."""
    if not scheduler.ignores_requests:
        return scheduler.ignores
    tables = (other.dialect.fields for other in map(scheduler_of, HAVE_DIRECTIVES) if other.dialect)
    others = frozenset().union(*map(requests, tables))
    return scheduler.ignores | others - scheduler.handles - scheduler.instead.keys()


def ignored(spec: JobSpec, site: Site, scheduler: Scheduler) -> list[str]:
    """Return the fields that a job sets although they have no effect on this scheduler.

    `directives` is left out if all of them are for other schedulers.
    """
    handled = OF_EVERY_SCRIPT | scheduler.handles
    fields: dict[str, None] = {}
    if others := _unlisted_names(spec, handled):  # load other schedulers' tables only in this case
        names = (field for field in others if _is_listed(field.name, without_effect(scheduler)))
        fields = dict.fromkeys(_as_a_whole(name, handled) for name in names)
    launcher = launcher_named(spec, site, scheduler)
    if spec.launcher.name not in (None, launcher):
        fields["launcher.name"] = None
    if spec.launcher.args and LAUNCHERS[launcher].here:
        fields["launcher.args"] = None
    if not of_scheduler(spec.directives, scheduler.name):
        fields.pop("directives", None)
    return list(fields)


def refused_of_job(spec: JobSpec, site: Site, scheduler: Scheduler) -> Iterator[tuple[str, str]]:
    """Yield the fields that a job sets and the scheduler does not support, each with what to do instead."""
    handled = OF_EVERY_SCRIPT | scheduler.handles
    if not _unlisted(spec, handled):
        return
    for field in _unlisted(spec, handled | without_effect(scheduler)):
        fix = scheduler.instead.get(field, "drop it")
        yield field, f"is not supported by {scheduler.title}, which {site.name} runs: {fix}"


def of_sites(scheduler: Scheduler) -> frozenset[str]:
    """Return the profile fields that are supported with this scheduler."""
    return OF_SITES | scheduler.handles_of_site | (OF_QUEUED_SITES if scheduler.has_queue else frozenset())


def refused_of_site(site: Site, scheduler: Scheduler) -> Iterator[tuple[str, str]]:
    """Yield fields that a profile sets and its scheduler does not support, with what to do instead."""
    for field in _unlisted(site, of_sites(scheduler)):
        yield field, f"is not supported by {scheduler.title}, the scheduler of this site: drop it"


def _unlisted_names(fields: msgspec.Struct, listed: frozenset[str]) -> list[Given]:
    return [field for field in given(fields) if not _is_listed(field.name, listed)]


def _unlisted(fields: msgspec.Struct, listed: frozenset[str]) -> list[str]:
    return list(dict.fromkeys(_as_a_whole(name, listed) for name in _unlisted_names(fields, listed)))


def _is_listed(name: str, listed: frozenset[str]) -> bool:
    """Whether a field, or a field that it could contain, is listed: an empty `snapshot` is a field, too."""
    return name in listed or _holds_some(name, listed)


def _as_a_whole(one: Given, others: frozenset[str]) -> str:
    """Return a field's place, or that of its outermost field if that field contains none of `others`."""
    outer = one.name.partition(".")[0]
    return one.place if _holds_some(outer, others) else outer


def _holds_some(name: str, listed: frozenset[str]) -> bool:
    return any(one.startswith(f"{name}.") for one in listed)
