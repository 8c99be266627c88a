"""castoff launch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from launcher.local.starter import StartRequest, start_ranks

_SUBMIT_ONLY = ("setup", "inherit", "array", "after", "requeue", "start")
"""Fields of a job file that mean nothing to ranks that start here and now."""


@click.command("launch")
@click.argument("job", required=False, type=click.Path())
@click.option("-n", "--ranks-per-node", type=click.IntRange(min=1), help="How many ranks; default 1.")
@click.option("--cores-per-rank", type=click.IntRange(min=1), help="Default: this process's, shared out.")
@click.option("--devices-per-rank", type=click.IntRange(min=0), help="Default: none is assigned.")
@click.option("--set", "overrides", multiple=True, metavar="FIELD=VALUE", help="Set any field of JOB.")
@click.option("--log-dir", type=click.Path(path_type=Path), help="Write each rank's log there.")
@click.option("--failure-file", type=click.Path(path_type=Path), help="Record the first failure there.")
@click.option("--job-id", help="What the rendezvous port is derived from.")
@click.pass_context
def command(
    context: click.Context,
    job: str | None,
    ranks_per_node: int | None,
    cores_per_rank: int | None,
    devices_per_rank: int | None,
    overrides: tuple[str, ...],
    log_dir: Path | None,
    failure_file: Path | None,
    job_id: str | None,
) -> int:
    """Start ranks on this machine, here and now, and show what they write.

    The program stands after --, or is the command of a job file. The exit code is that of the first
    rank to fail. Setup lines of a job file are not run: this is your shell's environment.
    """
    program: list[str] | None = context.obj
    request = StartRequest(
        command=program or [],
        ranks=ranks_per_node or 1,
        cores_per_rank=cores_per_rank,
        devices_per_rank=devices_per_rank,
        environment=os.environ,
        workdir=None,
        log_dir=log_dir,
        failure_file=failure_file,
        job_id=job_id or f"launch-{os.getpid()}",
    )
    if job is not None or overrides:
        request = _with_job(request, job, overrides, ranks_per_node)
    elif not program:
        raise click.UsageError(
            "name a program after --, as in castoff launch -n 2 -- python train.py", context
        )
    return start_ranks(request, output=sys.stdout.buffer, messages=sys.stderr)


def _with_job(
    request: StartRequest, job: str | None, overrides: tuple[str, ...], ranks: int | None
) -> StartRequest:
    """The request with what a job file says and no flag overrides."""
    from launcher.commands.job_options import check_job_file
    from launcher.planning import plan
    from launcher.site import Site
    from launcher.spec import JobSpec

    if job is not None:
        check_job_file(job)
    flags = {
        "command": list(request.command) or None,
        "ranks_per_node": ranks,
        "cores_per_rank": request.cores_per_rank,
        "devices_per_rank": request.devices_per_rank,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    spec = JobSpec.load(job, overrides=overrides, flags=given)
    if unused := [name for name in _SUBMIT_ONLY if getattr(spec, name) != getattr(JobSpec(), name)]:
        click.echo(f"castoff: launch leaves out {', '.join(unused)}, which castoff submit heeds", err=True)
    decided = plan(spec, Site.load("local"))
    environment = {**request.environment, **decided.env}
    if decided.python:
        folder = Path(decided.python).parent
        environment["PATH"] = f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return request._replace(
        command=decided.command,
        ranks=decided.ranks,
        cores_per_rank=decided.cores_per_rank,
        devices_per_rank=decided.devices_per_rank or None,
        environment=environment,
        workdir=Path(decided.workdir) if decided.workdir else None,
    )
