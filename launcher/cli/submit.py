"""castoff submit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.job_options import job_options, load_job, load_site
from launcher.cli.output import json_option, print_facts, print_json, say
from launcher.schedulers.registry import is_own

if TYPE_CHECKING:
    from launcher.submission.submit import DryRun


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

    from launcher.runs.provenance import read, words
    from launcher.submission.submit import dry_run, submit

    spec = load_job(job, overrides, flags)
    site = load_site(site_name, spec)
    if dry:
        would = dry_run(spec, site)
        if as_json:
            plan = msgspec.to_builtins(would.plan)
            print_json({"plan": plan, "script": would.script, "command": would.command})
        else:
            click.echo(would.script.encode(), nl=False)  # UTF-8, whatever the locale
            say("would make a run directory and run this; these lines can be pasted:")
            given = ["--site", site.name, *([job] if job else []), *_options(overrides, flags)]
            program = click.get_current_context().obj
            rendering = ["castoff", "render", *given, *(["--", *program] if program is not None else [])]
            click.echo("\n".join(_by_hand(would, rendering, runs_dir)), err=True)
        return
    run = submit(spec, site, runs_dir=runs_dir)
    record = run.submission()
    hours = record.node_hours if record else None
    if as_json:
        told = {"id": run.id, "job": run.job, "directory": str(run.path), "node_hours": hours}
        print_json(told)
        return
    code = read(run)
    print_facts(
        run=run.id,
        job=f"{run.job} ({site.scheduler})",
        directory=run.path,
        code=words(run) or None,
        snapshot=code.snapshot.words() if code and code.snapshot else None,
        node_hours="no walltime, so no bound" if hours is None else f"at most {hours:.2f}",
    )


def _options(overrides: tuple[str, ...], flags: dict[str, Any]) -> Iterator[str]:
    """The words that say the same to `castoff render`."""
    for override in overrides:
        yield from ("--set", override)
    for name, value in flags.items():
        if value is not None:
            yield from (f"--{name.replace('_', '-')}", str(value))


def _by_hand(would: DryRun, rendering: list[str], runs_dir: Path | None) -> Iterator[str]:
    """Lines for a POSIX shell that do what a submission does, with a run directory of their own."""
    from launcher.quoting import visible_word
    from launcher.runs.run import runs_folder
    from launcher.schedulers.command import command_environment

    script = " ".join(map(visible_word, rendering))
    if is_own(would.plan.scheduler):  # castoff's own scheduler takes nothing but submissions
        yield f"{script} | bash"
        return
    folder = visible_word(str((runs_dir or runs_folder(os.environ)).resolve()))
    yield f"CASTOFF_RUN_DIR=$(mkdir -p -m 755 {folder} && mktemp -d {folder}/by-hand-XXXXXX)"
    yield 'mkdir "$CASTOFF_RUN_DIR/attempts" "$CASTOFF_RUN_DIR/logs"'
    yield f'{script} >"$CASTOFF_RUN_DIR/job.sh"'
    misleading = sorted(os.environ.keys() - command_environment(os.environ).keys() - {"CASTOFF_RUN_DIR"})
    names = " ".join(name for name in misleading if name.isidentifier())
    commands = would.command.split("\n")
    for number, command in enumerate(commands, 1):
        line = re.sub(r":JOB\b", ":${JOB%%;*}", command)  # sbatch --parsable may add ;CLUSTER to the id
        line = f"(unset {names}; {line})" if names else line
        yield line if number == len(commands) else f"JOB=$({line})"  # the next one waits for it
