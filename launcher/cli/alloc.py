"""castoff alloc: open a shell in an interactive allocation, or run a command or a Jupyter server in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import asked_fields, job_options, load_site, read_job
from castoff.launcher.cli.output import report
from castoff.launcher.cli.program import TakesJob


@click.command(
    "alloc",
    cls=TakesJob,
    epilog=examples(
        "castoff alloc job.yaml", "castoff alloc -N 2 -t 1h -q debug", "castoff alloc job.yaml --jupyter"
    ),
)
@job_options
@click.option(
    "--jupyter", is_flag=True, help="Start Jupyter Lab on the first host, and print how to reach it."
)
@click.option(
    "--dry-run", "--test-only", "dry", is_flag=True, help="Print script and command line; touch nothing."
)
@click.option(
    "--runs-dir",
    type=click.Path(path_type=Path),
    help="Where the allocation's files are kept while it exists.",
)
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    jupyter: bool,
    dry: bool,
    runs_dir: Path | None,
    **flags: Any,
) -> int:
    """Open a shell in an interactive allocation (salloc, qsub -I, flux alloc) for a job.

    JOB is a job file; without one, flags describe the request. The shell is on the allocation's first host,
    in this folder, after the job's setup and with its env; `castoff launch` in it starts ranks on all hosts.
    A command after -- runs in place of the shell, and its exit code is returned. Ctrl-C withdraws a request
    that is still in the queue (exit code 130).
    """
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.interactive.alloc import OF_BATCH_JOBS, request, run

    program = click.get_current_context().obj
    if program == []:
        click.get_current_context().fail("name a command after --, or leave -- out for a shell")
    if jupyter and program:
        click.get_current_context().fail("--jupyter excludes a command after --")
    if job is None:
        flags = {**flags, "name": flags.get("name") or "alloc"}
    spec = read_job(job, overrides, flags, None if job else ["true"])
    if unused := asked_fields(spec, OF_BATCH_JOBS):
        report(
            f"alloc ignores {', '.join(unused)}, which only castoff submit and ranks in the allocation use"
        )
    prepared = request(spec, load_site(site_name, spec), program, job=job, jupyter=jupyter)
    if dry:
        click.echo(prepared.script.encode(), nl=False)
        report("would make a folder, CASTOFF_ALLOC_DIR, with this script as its enter.sh, and run:")
        click.echo(prepared.shown, err=True)
        return 0
    return run(prepared, os.environ, runs_dir=runs_dir)
