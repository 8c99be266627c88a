"""castoff doctor: report what would keep a job from running, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections import Counter
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
    from castoff.launcher.diagnosis.finding import Finding, Subject

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
@click.option("--trust", is_flag=True, help="Only list all that will run, and who else could change it.")
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
    Python, and who else could change what will run. With --nodes, a short job then tests that many nodes.

    Each line is ok, a warning, a problem, or unknown if a query gave no answer. The exit code is 1 if there
    is a problem, else 0.
    """
    if trust:
        if nodes is not None:
            click.get_current_context().fail("--trust excludes --nodes: drop one")
        return _trust(job, site_name, overrides, flags, runs_dir, as_json)
    count = None if nodes is None else _count(nodes)
    spec, site, unread = _read(job, site_name, overrides, flags)
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.diagnosis import login
    from castoff.launcher.diagnosis.finding import Subject, has_problem
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
    findings = _printed(unread, as_json)
    findings += _printed(
        login.findings(subject, lambda site, reported: Comparison(site, reported).differences), as_json
    )
    needed = [finding for finding in findings if finding.about in ("scheduler", "account", "queue")]
    if count is not None and not has_problem(needed):
        findings += _printed(_nodes(subject, count, flags["walltime"], quiet=as_json), as_json)
    _sum_up(findings, as_json)
    return int(has_problem(findings))


def _read(
    job: str | None, site_name: str | None, overrides: tuple[str, ...], flags: dict[str, Any]
) -> tuple[JobSpec, Site, list[Finding]]:
    """The job, the site, and a finding if castoff does not trust the job file."""
    from castoff.launcher.diagnosis.exposure import unusable
    from castoff.launcher.trust.decision import Untrusted

    program = click.get_current_context().obj
    asks = bool(overrides) or any(value is not None for value in flags.values())
    spec, unread = JobSpec(), []
    try:
        if job is not None or program or asks:
            # Flags alone describe a job without a program: `true` takes its place.
            spec = read_job(job, overrides, flags, program or (None if job else ["true"]))
    except Untrusted as error:
        unread = [unusable(Path(job or ""), error)]
    return spec, load_site(site_name, spec), unread


def _count(nodes: str) -> int:
    if not (nodes.isdecimal() and 0 < int(nodes) < 1_000_000):
        click.get_current_context().fail(
            f"--nodes is {nodes!r}, but takes a number of nodes, as in --nodes 2"
        )
    return int(nodes)


def _nodes(subject: Subject, nodes: int, walltime: str | None, *, quiet: bool) -> Iterator[Finding]:
    """The findings of a job that tests `nodes` nodes."""
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
            status = node_job.watch(run, say)
    except (KeyboardInterrupt, SystemExit):
        report(f"run {run.id} was cancelled")
        raise
    yield from node_results.findings(run, status, subject)
    if others := node_results.without_unfit(run, status, subject):
        yield from _nodes(*others, walltime, quiet=quiet)


def _printed(findings: Iterable[Finding], as_json: bool) -> list[Finding]:
    """Print findings as they arrive, and return them."""
    printed = []
    for finding in findings:
        printed.append(finding)
        if as_json:
            print_json({name: value for name, value in finding._asdict().items() if value is not None})
            continue
        mark = f"{finding.status:8}"
        mark = f"\x1b[{_COLOURS[finding.status]}m{mark}\x1b[0m" if has_colours() else mark
        click.echo(f"{mark} {finding.about:10} {printable(finding.fact)}")
        if finding.remedy:
            click.echo(f"{'':8} {'fix':>10} {printable(finding.remedy)}")
        sys.stdout.flush()
    return printed


def _sum_up(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        return
    counts = Counter(finding.status for finding in findings)
    parts = [counted(counts[status], status) for status in ("problem", "warning")]
    click.echo(", ".join([*parts, *([f"{counts['unknown']} unknown"] if counts["unknown"] else [])]))


def _trust(
    job: str | None,
    site_name: str | None,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    runs_dir: Path | None,
    as_json: bool,
) -> int:
    """Print everything that will be read or run, who else could change it, and the fix."""
    from castoff.launcher.diagnosis.exposure import exposures, unknown_words
    from castoff.launcher.trust.decision import Untrusted, fixes

    program = click.get_current_context().obj
    spec = site = None
    if job is not None or program is not None:
        try:
            spec = read_job(job, overrides, flags, program)
            site = load_site(site_name, spec)
        except Untrusted as error:  # the file is listed below, but not the files that it names
            click.echo(f"not looked into: {str(error).partition(chr(10))[0]}", err=True)
    exposed = exposures(job, spec, site, runs_dir=runs_dir, environ=os.environ)
    weak = list(dict.fromkeys(weakness for file in exposed for weakness in file.refused))
    if as_json:
        print_json(
            *(
                {
                    "what": file.role,
                    "path": str(file.path),
                    "weak": [{"path": str(weakness.path), "why": weakness.why} for weakness in file.weak],
                    "trusted": not file.refused,
                    "lists_not_known": file.hidden,
                }
                for file in exposed
            )
        )
        return 1 if weak else 0
    for file in exposed:
        click.echo(f"{file.role:17}  {file.path}")
        for weakness in file.weak:
            note = "" if weakness in file.refused else " (trusted)"
            click.echo(f"{'':17}    {weakness.path} {weakness.why}{note}")
        if file.hidden:
            click.echo(f"{'':17}    {unknown_words(file.hidden)}")
    for line in fixes(weak):
        click.echo(line)
    if not weak:
        limit = ", as far as access lists are known" if any(file.hidden for file in exposed) else ""
        click.echo(f"only you, root and those you trust can change any of it{limit}")
    return 1 if weak else 0


def _nodes_option() -> None:
    """Let --nodes mean the number of nodes to test, and remove its short form -N."""
    option = next(param for param in command.params if param.name == "nodes")
    assert isinstance(option, click.Option)
    option.opts, option.help = ["--nodes"], "Also test this many nodes, with a job of about a minute."


_nodes_option()
