"""castoff doctor: report what would keep a job from running, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import job_options, load_site, read_job
from castoff.launcher.cli.output import has_colours, is_terminal, json_option, print_json, report
from castoff.launcher.cli.program import TakesJob
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.text.words import counted

if TYPE_CHECKING:
    from castoff.launcher.diagnosis.finding import Finding
    from castoff.launcher.diagnosis.subject import Subject

_COLOURS = {"ok": "32", "warning": "33", "problem": "1;31", "unknown": "35"}


@click.command(
    "doctor",
    cls=TakesJob,
    epilog=examples(
        "castoff doctor",
        "castoff doctor job.yaml",
        "castoff doctor job.yaml --nodes 2",
        "castoff doctor --trust job.yaml --site aurora",
    ),
)
@job_options
@click.option("--trust", is_flag=True, help="Show only who else could change what will run, all of it.")
@click.option("--runs-dir", type=click.Path(path_type=Path), help="Where run directories go.")
@json_option
def command(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    trust: bool,
    runs_dir: Path | None,
    as_json: bool,
    nodes: str | None,
    **flags: Any,
) -> int:
    """Check what could keep a job from running; without JOB or a program, any job.

    On this host: the scheduler, account and queue, file systems and quotas, the folder of runs, the job's
    Python, and who else could change what will run. With --nodes, a short job then tries so many nodes.

    Each line is ok, a warning, a problem, or unknown where nothing answered. The exit code is 1 if there is
    a problem, else 0.
    """
    if trust:
        if nodes is not None:
            click.get_current_context().fail("--trust excludes --nodes: drop one")
        return _trust(job, site_name, overrides, flags, runs_dir, as_json)
    count = None if nodes is None else _count(nodes)
    spec, site, found = _read(job, site_name, overrides, flags)
    from castoff.launcher.diagnosis import (
        login,  # late: a shell that completes our flags waits for what is imported
    )
    from castoff.launcher.diagnosis.finding import has_problem
    from castoff.launcher.diagnosis.subject import Subject
    from castoff.launcher.runs.run import runs_folder
    from castoff.launcher.siting.check import Comparison
    from castoff.launcher.submission.submit import working_directory

    environ = os.environ
    subject = Subject.of(
        site,
        spec,
        source=job,
        directory=Path(working_directory()),
        runs=(runs_dir or runs_folder(environ)).absolute(),
        environ=environ,
    )
    found = _printed(found, as_json)
    found += _printed(
        login.findings(subject, lambda site, reported: Comparison(site, reported).differences), as_json
    )
    lost = any(one.about in ("scheduler", "account", "queue") and one.status == "problem" for one in found)
    if count is not None and not lost:
        found += _printed(_nodes(subject, count, flags["walltime"], quiet=as_json), as_json)
    _sum_up(found, as_json)
    return int(has_problem(found))


def _read(
    job: str | None, site_name: str | None, overrides: tuple[str, ...], flags: dict[str, Any]
) -> tuple[JobSpec, Site, list[Finding]]:
    """The job, the site, and what kept the job's file from being read."""
    from castoff.launcher.diagnosis.run_folder import unusable
    from castoff.launcher.trust.decision import Untrusted

    program = click.get_current_context().obj
    asks = bool(overrides) or any(value is not None for value in flags.values())
    spec, found = JobSpec(), []
    try:
        if job is not None or program or asks:
            # A job that only flags describe has no program yet; `true` stands for it.
            spec = read_job(job, overrides, flags, program or (None if job else ["true"]))
    except Untrusted as error:
        found = [unusable(Path(job or ""), error)]
    return spec, load_site(site_name, spec), found


def _count(nodes: str) -> int:
    if not (nodes.isdecimal() and 0 < int(nodes) < 1_000_000):
        click.get_current_context().fail(
            f"--nodes is {nodes!r}, but takes a number of nodes, as in --nodes 2"
        )
    return int(nodes)


def _nodes(subject: Subject, nodes: int, walltime: str | None, *, quiet: bool) -> Iterator[Finding]:
    """Try so many nodes by a job; what it finds."""
    from castoff.launcher.diagnosis import node_job, node_results
    from castoff.launcher.diagnosis.finding import Finding

    try:
        if refused := [*node_job.refusals(subject, nodes, walltime)]:
            yield from refused
            return
        run = node_job.start(subject, nodes, walltime)
    except CastoffError as error:
        fix = "give the job what it lacks, as in --account NAME or --set, or mend the problems above"
        yield Finding("nodes", "problem", "; ".join(["no job was submitted", *str(error).splitlines()]), fix)
        return
    say = report if not quiet and is_terminal(sys.stderr) else lambda words: None
    try:
        with node_job.cancelled_on_interrupt(run):
            report(f"run {run.id} tries {counted(nodes, 'node')} as job {run.job}; Ctrl-C cancels it")
            now = node_job.watch(run, say)
    except (KeyboardInterrupt, SystemExit):
        report(f"run {run.id} was cancelled")
        raise
    yield from node_results.findings(run, now, subject)
    if others := node_results.without_unfit(run, now, subject):
        yield from _nodes(*others, walltime, quiet=quiet)


def _printed(found: Iterable[Finding], as_json: bool) -> list[Finding]:
    """Print findings as they come, and return them."""
    kept = []
    for one in found:
        kept.append(one)
        if as_json:
            print_json({name: value for name, value in one._asdict().items() if value is not None})
            continue
        mark = f"\x1b[{_COLOURS[one.status]}m{one.status:8}\x1b[0m" if has_colours() else f"{one.status:8}"
        click.echo(f"{mark} {one.about:10} {printable(one.fact)}")
        if one.remedy:
            click.echo(f"{'':8} {'fix':>10} {printable(one.remedy)}")
        sys.stdout.flush()
    return kept


def _sum_up(found: list[Finding], as_json: bool) -> None:
    if as_json:
        return
    counts = [(sum(one.status == status for one in found), status) for status in ("problem", "warning")]
    unknown = sum(one.status == "unknown" for one in found)
    parts = [counted(count, what) for count, what in counts]
    click.echo(", ".join([*parts, *([f"{unknown} unknown"] if unknown else [])]))


def _trust(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    runs_dir: Path | None,
    as_json: bool,
) -> int:
    """Print, of all that will be read or run, who else could change it, and the fix."""
    from castoff.launcher.diagnosis.exposure import exposures, unknown_words
    from castoff.launcher.trust.decision import Untrusted, fixes

    program = click.get_current_context().obj
    spec = site = None
    if job is not None or program is not None:
        try:
            spec = read_job(job, overrides, flags, program)
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
                    "lists_not_known": one.hidden,
                }
                for one in found
            )
        )
        return 1 if weak else 0
    for one in found:
        click.echo(f"{one.what:17}  {one.path}")
        for bad in one.found:
            click.echo(f"{'':17}    {bad.path} {bad.why}{'' if bad in one.refused else ' (trusted)'}")
        if one.hidden:
            click.echo(f"{'':17}    {unknown_words(one.hidden)}")
    for line in fixes(weak):
        click.echo(line)
    if not weak:
        so_far = ", as far as access lists are known" if any(one.hidden for one in found) else ""
        click.echo(f"only you, root and those you trust can change any of it{so_far}")
    return 1 if weak else 0


def _nodes_option() -> None:
    """Here --nodes is how many nodes are tried, and -N, which elsewhere is the job's own number, nothing."""
    option = next(one for one in command.params if one.name == "nodes")
    assert isinstance(option, click.Option)
    option.opts, option.help = ["--nodes"], "Also try so many nodes, by a job of about a minute."


_nodes_option()
