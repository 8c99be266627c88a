"""castoff submit: submit a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import job_options, load_job, load_site, target
from castoff.launcher.cli.output import (
    check_followed,
    follow_option,
    json_option,
    print_facts,
    print_json,
    print_script,
    report,
)
from castoff.launcher.cli.program import TakesJob

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.site import Site


@click.command(
    "submit",
    cls=TakesJob,
    epilog=examples(
        "castoff submit job.yaml",
        "castoff submit job.yaml -N 4 -t 2h -A MyProject --set env.LR=0.1",
        "castoff submit -n 2 --site local -- python train.py --lr 0.1",
    ),
)
@job_options
@follow_option
@click.option("--dry-run", "dry", is_flag=True, help="Print script and command line; touch nothing.")
@click.option("--runs-dir", type=click.Path(path_type=Path), help="Where run directories go.")
@click.option("--yes", is_flag=True, help="Do not ask before code is sent to another machine.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    follows: bool,
    dry: bool,
    runs_dir: Path | None,
    yes: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Submit a job: make its run directory, submit its script, print the run's id.

    With -f, its logs follow, and the exit code is the job's; Ctrl-C then leaves the job as it is.
    """
    check_followed(follows, {"--json": as_json, "--dry-run": dry})
    # Imported late, since a shell that completes options waits for this module.
    import msgspec

    from castoff.launcher.preflight.presence import check_present
    from castoff.launcher.preflight.syntax import check_syntax
    from castoff.launcher.runs.provenance import read, words
    from castoff.launcher.schedulers.choice import not_described
    from castoff.launcher.submission.submit import dry_run, submit, working_directory

    spec = load_job(job, overrides, flags)
    if (other := target.get()) is not None:
        from castoff.launcher.cli.submit_elsewhere import submit_elsewhere

        choices = {"follows": follows, "dry": dry, "as_json": as_json, "agrees": yes}
        return submit_elsewhere(other.machine, other.typed, spec, site_name, runs_dir=runs_dir, **choices)
    site = load_site(site_name, spec)
    if dry:
        would = dry_run(spec, site)
        check_syntax(would.plan, would.rendered)
        check_present(spec, site, would.plan, Path(working_directory()), os.environ, refuses=False)
        if as_json:
            plan = msgspec.to_builtins(would.plan)
            print_json({"plan": plan, "script": would.script, "command": would.command})
        else:
            print_script(would.script)
            report("would make a run directory, CASTOFF_RUN_DIR, with this script as its job.sh, and run:")
            click.echo(would.command, err=True)
        return 0
    run = submit(spec, site, runs_dir=runs_dir)
    _report_changes(spec, site)
    if site_name is None and (note := not_described(site)):
        report(note)
    record = run.submission()
    hours = record.node_hours if record else None
    if as_json:
        print_json({"id": run.id, "job": run.job, "directory": str(run.path), "node_hours": hours})
        return 0
    code = read(run)
    print_facts(
        run=run.id,
        job=f"{run.job} ({site.scheduler})",
        directory=run.path,
        code=words(run) or None,
        snapshot=code.snapshot.words() if code and code.snapshot else None,
        node_hours="no walltime, so no bound" if hours is None else f"at most {hours:.2f}",
    )
    if not follows:
        return 0
    from castoff.launcher.cli.follow import follow_run

    return follow_run(run)


def _report_changes(spec: JobSpec, site: Site) -> None:
    """Report which fields have no effect on this site, and a name that the run's id spells differently."""
    from castoff.launcher.config.references import references, texts
    from castoff.launcher.planning.parameters import run_name
    from castoff.launcher.runs.drafts import name_in_id
    from castoff.launcher.schedulers.fields import ignored
    from castoff.launcher.schedulers.registry import scheduler_of

    if without := ignored(spec, site, scheduler_of(site.scheduler)):
        report(f"no effect on site {site.name}: {', '.join(without)}")
    if spec.array and (table := spec.array.table) and not any(map(references, texts(spec).values())):
        names = " or ".join(f"{{{name}}}" for name in table.names)
        report(f"the job does not use {names}: its program gets them in the file CASTOFF_PARAMETERS")
    if spec.name and (in_id := name_in_id(name := run_name(spec))) != name:
        report(f"the run's id spells the name {name} as {in_id}")
