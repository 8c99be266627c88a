"""castoff doctor: say who else could change what will run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from launcher.cli.help import examples
from launcher.cli.job_options import job_options, load_job, load_site
from launcher.cli.output import json_option, print_json
from launcher.cli.program import TakesJob


@click.command(
    "doctor",
    cls=TakesJob,
    epilog=examples(
        "castoff doctor --trust",
        "castoff doctor --trust job.yaml --site aurora",
    ),
)
@job_options
@click.option("--trust", is_flag=True, help="Show who else could change what will run.")
@click.option("--runs-dir", type=click.Path(path_type=Path), help="Where run directories go.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    trust: bool,
    runs_dir: Path | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Check what could go wrong with a job submitted from here; without JOB or a program, with any job.

    --trust prints, of all that will be read or run, who beside you and root could change it, the folder
    that is weak, and the fix. The exit code is 1 if somebody can whom you have not trusted.
    """
    # Late: a shell that completes our flags waits for what is imported.
    from launcher.submission.exposure import exposures
    from launcher.trust.decision import Untrusted, fixes

    context = click.get_current_context()
    if not trust:
        context.fail("name what to look at: --trust")
    spec = site = None
    if job is not None or context.obj is not None:
        try:
            spec = load_job(job, overrides, flags)
            site = load_site(site_name, spec)
        except Untrusted as error:  # which is among what is printed; what it would have named is not
            click.echo(f"not looked into: {str(error).partition(chr(10))[0]}", err=True)
    found = exposures(job, spec, site, runs_dir=runs_dir, environ=os.environ)
    weak = list(dict.fromkeys(weakness for one in found for weakness in one.refused))
    if as_json:
        print_json(
            *(
                {
                    "what": one.what,
                    "path": str(one.path),
                    "weak": [{"path": str(bad.path), "why": bad.why} for bad in one.found],
                    "trusted": not one.refused,
                }
                for one in found
            )
        )
        return 1 if weak else 0
    for one in found:
        click.echo(f"{one.what:17}  {one.path}")
        for bad in one.found:
            click.echo(f"{'':17}    {bad.path} {bad.why}{'' if bad in one.refused else ' (trusted)'}")
    for line in fixes(weak):
        click.echo(line)
    if not weak:
        click.echo("only you, root and those you trust can change any of it")
    return 1 if weak else 0
