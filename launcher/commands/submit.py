"""castoff submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from launcher.commands.job_options import job_options, load_job, load_site
from launcher.commands.output import json_option, print_json, say


@click.command("submit")
@job_options
@click.option("--dry-run", "dry", is_flag=True, help="Print script and command line; touch nothing.")
@click.option("--runs-dir", type=click.Path(path_type=Path), help="Where run directories go.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    dry: bool,
    runs_dir: Path | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Submit a job: make its run directory, submit its script, print the run's id."""
    # Late: a shell that completes our flags waits for what is imported.
    import msgspec

    from launcher.provenance import read, words
    from launcher.submission import dry_run, submit

    spec = load_job(job, overrides, flags)
    site = load_site(site_name, spec)
    if dry:
        would = dry_run(spec, site)
        if as_json:
            plan = msgspec.to_builtins(would.plan)
            print_json({"plan": plan, "script": would.script, "command": would.command})
        else:
            click.echo(would.script.encode(), nl=False)  # UTF-8, whatever the locale
            say(f"would run: {would.command}")
        return
    run = submit(spec, site, runs_dir=runs_dir)
    record = run.submission()
    hours = record["node_hours"]
    if as_json:
        told = {"id": run.id, "job": record["job"], "directory": str(run.path), "node_hours": hours}
        print_json(told)
        return
    click.echo(f"run         {run.id}")
    click.echo(f"job         {record['job']} ({site.scheduler})")
    click.echo(f"directory   {run.path}")
    if line := words(run):
        click.echo(f"code        {line}")
    code = read(run)
    if code is not None and code.snapshot is not None:
        click.echo(f"snapshot    {code.snapshot.words()}")
    click.echo(f"node-hours  {'no walltime, so no bound' if hours is None else f'at most {hours:.2f}'}")
