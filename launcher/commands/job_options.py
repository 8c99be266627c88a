"""What render, submit and others share: the job file, its overrides, and the site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import click

from launcher.errors import CastoffError
from launcher.site import Site
from launcher.spec import JobSpec

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS = ("nodes", "ranks_per_node", "ranks", "cores_per_rank", "devices_per_rank")
_TEXTS = (
    "name",
    "memory",
    "walltime",
    "account",
    "queue",
    "qos",
    "constraint",
    "reservation",
    "exclude",
    "workdir",
    "python",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def job_options(function: F) -> F:
    """Add JOB, --site, --set and a flag for each plain field of a job file."""
    hints = get_type_hints(JobSpec, include_extras=True)
    for name in reversed((*_NUMBERS, *_TEXTS)):
        flag = f"--{name.replace('_', '-')}"
        kind = click.INT if name in _NUMBERS else click.STRING
        function = click.option(flag, type=kind, help=hints[name].__metadata__[-1].description)(function)
    function = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Set any field, as in env.A=1.",
    )(function)
    function = click.option("--site", "site_name", help="The site; see `castoff sites`.")(function)
    return click.argument("job", required=False, type=click.Path())(function)


def load_job(job: str | None, overrides: tuple[str, ...], flags: dict[str, Any]) -> JobSpec:
    """The job of a file, flags and --set; what stands after -- is its command."""
    program = click.get_current_context().obj
    given = {name: value for name, value in flags.items() if value is not None}
    if program is not None:
        given["command"] = program
    if job is None and program is None and not any(item.startswith("command=") for item in overrides):
        raise CastoffError("name a job file, or a program after --, as in castoff render -- python train.py")
    return JobSpec.load(job, overrides=overrides, flags=given)


def load_site(name: str | None) -> Site:
    """The site by name, else by the rule of `Site.choose`; says on standard error which and why."""
    if name is not None:
        return Site.load(name)
    site, why = Site.choose()
    click.echo(f"castoff: site {site.name}: {why}", err=True)
    return site
