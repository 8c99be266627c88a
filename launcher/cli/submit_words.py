"""What `castoff submit` prints about one job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from castoff.launcher.cli.output import print_json, print_script, report

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.site import Site


def print_dry_run(spec: JobSpec, site: Site, *, as_json: bool) -> None:
    """Print what a submission would do: the script, and the command line on standard error."""
    # Imported late, since a shell that completes options waits for this module.
    import msgspec

    from castoff.launcher.preflight.presence import check_present
    from castoff.launcher.preflight.syntax import check_syntax
    from castoff.launcher.submission.submit import dry_run, working_directory

    would = dry_run(spec, site)
    check_syntax(would.plan, would.rendered, spec)
    check_present(spec, site, would.plan, Path(working_directory()), os.environ, refuses=False)
    if as_json:
        plan = msgspec.to_builtins(would.plan)
        print_json({"plan": plan, "script": would.script, "command": would.command})
        return
    print_script(would.script)
    report("would make a run directory, CASTOFF_RUN_DIR, with this script as its job.sh, and run:")
    click.echo(would.command, err=True)


def bound_words(hours: list[float | None]) -> str:
    """The node-hours of several jobs together, at most."""
    bounded = [one for one in hours if one is not None]
    return f"at most {sum(bounded):.2f}" if len(bounded) == len(hours) else "no walltime, so no bound"


def report_changes(spec: JobSpec, site: Site) -> None:
    """Report which fields have no effect on this site, variables that a script lacks there, and a name that
    the run's id spells differently.
    """
    from castoff.launcher.config import batch_script
    from castoff.launcher.planning import parameters
    from castoff.launcher.runs.drafts import name_in_id
    from castoff.launcher.schedulers.fields import ignored
    from castoff.launcher.schedulers.registry import scheduler_of
    from castoff.launcher.schedulers.variables import foreign_prefixes

    scheduler = scheduler_of(site.scheduler)
    if without := ignored(spec, site, scheduler):
        report(f"no effect on site {site.name}: {', '.join(without)}")
    if spec.script and (lacking := batch_script.variables(spec.script, foreign_prefixes(site.scheduler))):
        report(f"the script uses {', '.join(lacking)}, which {scheduler.title} does not set")
    for note in parameters.notes(spec):
        report(note)
    if spec.name and (in_id := name_in_id(name := parameters.run_name(spec))) != name:
        report(f"the run's id spells the name {name} as {in_id}")
