"""castoff render: print the script that a scheduler gets."""

from __future__ import annotations

import sys
from typing import Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import job_options, load_jobs, load_site, only_option
from castoff.launcher.cli.output import (
    is_terminal,
    json_option,
    print_json,
    print_script,
    report,
    write_output,
)
from castoff.launcher.cli.program import TakesJob
from castoff.launcher.config.job_group import JobGroup


@click.command(
    "render",
    cls=TakesJob,
    epilog=examples(
        "castoff render job.yaml --site aurora --head",
        "castoff render -N 2 -t 30m --site slurm -- python train.py --lr 0.1",
        "castoff render job.yaml --site perlmutter --picture node.svg",
        "castoff render sweep.yaml --members",
    ),
)
@job_options
@only_option
@click.option("--head", is_flag=True, help="Only the job's own part, which is above castoff's functions.")
@click.option("-o", "--output", type=click.Path(), help="Write the script to a file; - prints it.")
@click.option(
    "--picture",
    type=click.Path(),
    help="Draw a node's ranks, cores and devices, as SVG, to a file; - prints it.",
)
@click.option("--members", is_flag=True, help="Print what each member of the array runs, a line each.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    only: tuple[str, ...],
    head: bool,
    output: str | None,
    picture: str | None,
    members: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Print the script that a scheduler gets, byte for byte. Asks no scheduler anything.

    JOB is a job file, with --only NAME if it holds several; without one, flags and the program after -- make
    the job.
    """
    # Imported late, since a shell that completes options waits for this module.
    import msgspec

    from castoff.launcher.cli.members import print_members
    from castoff.launcher.planning.planner import decide
    from castoff.launcher.planning.render import rendered
    from castoff.launcher.preflight.syntax import check_syntax
    from castoff.launcher.preflight.warnings import report_shell_words
    from castoff.launcher.runs.script import head_of

    spec = load_jobs(job, overrides, flags, only)
    if isinstance(spec, JobGroup):
        click.get_current_context().fail(
            f"{job} holds several jobs; choose one by --only: {', '.join(spec.names)}"
        )
    site = load_site(site_name, spec)
    decided, scheduler = decide(spec, site)
    whole = rendered(decided, scheduler)
    check_syntax(decided, whole, spec)
    report_shell_words(spec)
    script = whole.text
    if members:
        print_members(decided, as_json=as_json)
        return
    if head:
        script = head_of(script)
    if as_json:
        print_json({"plan": msgspec.to_builtins(decided), "script": script})
    elif output is None and picture is None:
        if not head and is_terminal(sys.stdout):
            report("--head shows the job's part alone, without castoff's own functions")
        print_script(script)
    if output is not None:
        _write(output, script, 0o755)
    if picture is not None:
        from castoff.launcher.planning.picture import picture as drawn

        _write(picture, drawn(decided, site.node), 0o644)


def _write(name: str, text: str, mode: int) -> None:
    """Write to a file, a device or a pipe; `-` is standard output."""
    if name == "-":
        print_script(text)
    else:
        write_output(name, text, mode)
