"""Options that several verbs share: the job file, its overrides, the site, and the machine to run on."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from castoff.launcher.cli.offers import F, set_option, site_option
from castoff.launcher.cli.output import report
from castoff.launcher.cli.shorthands import shorthand_options, without_shorthands
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import printable
from castoff.launcher.schedulers.choice import NO_SCHEDULER, choose_site, site_named
from castoff.launcher.schedulers.registry import OWN
from castoff.launcher.typed.document import invalid
from castoff.launcher.typed.structure import fields_of

if TYPE_CHECKING:
    from castoff.launcher.remote.machine import Machine

_NUMBERS = ("nodes", "ranks_per_node", "ranks", "cores_per_rank", "devices_per_rank")
_OF_CLUSTERS = ("device_type", "account", "queue", "qos", "constraint", "reservation", "exclude")
_SHORT = {
    "nodes": ["-N"],
    "ranks": ["-n"],
    "name": ["-J"],
    "walltime": ["-t"],
    "account": ["-A"],
    "queue": ["-q", "-p"],
}
"""Short flags of sbatch, srun, mpiexec and qsub. Where these disagree, -q is the queue and -N the number of
nodes.
"""

_PROGRAMS = ("command=", "array.commands=")
"""Assignments of --set that name the program."""

_TEXTS = ("name", "memory", "walltime", "grace", *_OF_CLUSTERS, "workdir", "python")


class Target(NamedTuple):
    """The other machine for which a job is planned."""

    machine: Machine
    typed: list[str]
    """The whole command line, as the user typed it."""


target: contextvars.ContextVar[Target | None] = contextvars.ContextVar("target", default=None)
"""The machine that `--on` names, for verbs that read a job file on this machine; None without `--on`."""


def job_options(function: F) -> F:
    """Add JOB, --site, --set, a flag for each plain field of a job file, and those of `shorthands`."""
    fields = fields_of(JobSpec)
    function = shorthand_options(function)
    for name in reversed((*_NUMBERS, *_TEXTS)):
        flag = f"--{name.replace('_', '-')}"
        kind = "INTEGER" if name in _NUMBERS else "TEXT"
        words = fields[name].type.__metadata__[-1].description
        function = click.option(*_SHORT.get(name, []), flag, metavar=kind, help=words)(function)
    function = site_option("The site; see `castoff sites`.")(set_option(function))
    return job_argument(function)


def only_option(function: F) -> F:
    """Add --only."""
    return click.option(
        "--only", multiple=True, metavar="NAME", help="Only this job of a file with several; may be repeated."
    )(function)


job_argument = click.argument("job", required=False, type=click.Path(), metavar="[JOB] [-- COMMAND...]")
"""The argument for a job file, with a hint in its usage that a program follows --."""


def load_job(job: str | None, overrides: tuple[str, ...], flags: dict[str, Any]) -> JobSpec:
    """The job from a file, flags and --set; words after -- replace its command. Fails without file and
    program.
    """
    context = click.get_current_context()
    program = context.obj
    if job is None and not program and not any(item.startswith(_PROGRAMS) for item in overrides):
        how = f"as in {context.command_path} -- python train.py"
        context.fail(f"name a job file, or a program after --, {how}")
    return read_job(job, overrides, flags, program)


def read_job(
    job: str | None, overrides: tuple[str, ...], flags: dict[str, Any], program: list[str] | None
) -> JobSpec:
    """The job from a file, flags and --set; `program` replaces its command."""
    values = values_of(flags)
    if program:
        values["command"] = program
    return JobSpec.load(job, overrides=overrides, flags=values)


def load_jobs(
    job: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    only: tuple[str, ...],
    since: tuple[str, ...] = (),
) -> JobSpec | JobGroup:
    """The job or jobs from a file, flags and --set; see `load_job`."""
    context = click.get_current_context()
    if job is None or context.obj:
        for option in (name for name, given in (("--only", only), ("--from", since)) if given):
            context.fail(f"{option} selects jobs of a file with several")
        return load_job(job, overrides, flags)
    loaded = load(job, overrides=overrides, flags=values_of(flags), only=only, since=since)
    return loaded.jobs[0] if isinstance(loaded, JobGroup) and len(loaded.jobs) == 1 else loaded


def asked_fields(spec: JobSpec, fields: Iterable[str]) -> list[str]:
    """Return those of the named fields that a job sets."""
    plain = type(spec)()
    return [name for name in fields if getattr(spec, name) != getattr(plain, name)]


def values_of(flags: dict[str, Any]) -> dict[str, Any]:
    """The values of the fields that flags set, by the fields' paths."""
    return {name: _number(name, value) for name, value in without_shorthands(flags).items()}


def _number(name: str, value: str | int) -> str | int:
    """Convert the value of a numeric field to an int; return other text unchanged, for the checks of the
    whole job to report.
    """
    text = str(value)
    return int(text) if name in _NUMBERS and text.isdecimal() and len(text) < 19 else value


def load_site(name: str | None, *specs: JobSpec) -> Site:
    """The named site, or the one that `choose_site` chooses, with the reason reported on standard error.
    `specs`: the jobs for it.

    Raises:
        InvalidInput: a job needs a cluster, but no site is named, and this host has no scheduler.
    """
    if name is not None:
        return site_named(name)
    if (other := target.get()) is not None:
        from castoff.launcher.cli.submit_elsewhere import machine_site

        return machine_site(other.machine, other.typed, name)
    site, why = choose_site()
    for spec in specs if why == NO_SCHEDULER else ():
        _refuse_a_clusters_job(spec)
    report(f"site {site.name}: {why}")
    return site


def _refuse_a_clusters_job(spec: JobSpec) -> None:
    needed = [f"nodes: {spec.nodes}"] if (spec.nodes or 1) > 1 else []
    for field in (*_OF_CLUSTERS, "exclusive", "mail", "options", "directives"):
        value = getattr(spec, field)
        if value:
            needed.append(f"{field}: {printable(value)}" if isinstance(value, str) else field)
    if needed:
        origin = spec.source.origin if spec.source else "job"
        sites = [name for name in Search.here().profiles() if name != OWN]
        message = (
            f"is for a cluster ({', '.join(needed)}), but no site is named, and {NO_SCHEDULER}: name the "
            f"machine with --site, one of {', '.join(sites)}; or --site local for this machine"
        )
        raise invalid(origin, message)
