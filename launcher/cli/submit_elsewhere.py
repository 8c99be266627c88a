"""castoff --on NAME submit, of a job or several: the options, the questions to the user, and the printed
facts.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from castoff.launcher.cli.output import is_terminal, print_facts, print_json, print_script, report
from castoff.launcher.cli.submit_words import bound_words
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote import submission
from castoff.launcher.remote.code import Travelling, needs_agreement, top_level_words
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.group_submission import submit_group_there
from castoff.launcher.remote.machine import Machine, Session
from castoff.launcher.remote.messages import Grouped, Submitted
from castoff.launcher.remote.passing import Passed, follow_through
from castoff.launcher.remote.remembered import agreed_bytes, remember_agreement
from castoff.launcher.schedulers.choice import site_named
from castoff.launcher.submission.submit import dry_run, working_directory
from castoff.launcher.text.quoting import visible_word


def submit_elsewhere(
    machine: Machine,
    typed: list[str],
    spec: JobSpec | JobGroup,
    site_name: str | None,
    *,
    selection: tuple[str, ...],
    new: bool,
    follows: bool,
    dry: bool,
    runs_dir: Path | None,
    as_json: bool,
    agrees: bool,
) -> int:
    """Submit a job or a group on another machine, print the runs, and return the exit code.

    `selection` and `new` are for a group, as in `submit_group`. `agrees`: the user agrees to send any code.

    Raises:
        CastoffError: the job, or one of the jobs, cannot be submitted.
    """
    there = _runs_dir(machine, runs_dir)
    specs = spec.jobs if isinstance(spec, JobGroup) else [spec]
    if dry:
        return _dry_run(machine, specs, machine_site(machine, typed, site_name), as_json=as_json)
    with _ready(machine, typed, specs, site_name, agrees=agrees) as (jobs, codes, session, note):
        about = (session, os.environ, report)
        if isinstance(spec, JobGroup):
            group = submit_group_there(
                machine, spec, jobs, codes, *about, selection=selection, new=new, runs_dir=there
            )
        else:
            result = submission.submit_there(machine, jobs[0], codes[0], *about, runs_dir=there)
    if isinstance(spec, JobGroup):
        _print_group(machine, group, note, as_json=as_json)
        name = group.group
    else:
        _print(machine, result, note, follows=follows, as_json=as_json)
        name = result.run
    return _follow(machine, name) if follows else 0


def _runs_dir(machine: Machine, runs_dir: Path | None) -> str | None:
    if runs_dir is not None and not runs_dir.is_absolute():
        where = f"a folder on {machine.entry.name}"
        context = click.get_current_context()
        context.fail(f"--runs-dir is {str(runs_dir)!r}, {where}: give its whole path there")
    return None if runs_dir is None else str(runs_dir)


class _Ready(NamedTuple):
    """Jobs that can be sent."""

    jobs: list[submission.Planned]
    codes: list[Travelling]
    """The code of each job, which the user agrees to send."""
    session: Session
    note: str | None
    """A hint if the site's profile does not describe the machine."""


@contextlib.contextmanager
def _ready(
    machine: Machine, typed: list[str], specs: Sequence[JobSpec], site_name: str | None, *, agrees: bool
) -> Iterator[_Ready]:
    """Plan jobs, with the user's agreement to send their code, and connect to the machine."""
    entry = machine.entry
    site = _known_site(entry, site_name)
    jobs = submission.all_planned(specs, site) if site else []
    codes = _agreed(entry, jobs, agrees=agrees)
    note = None
    with machine.session(typed, site=_asked_site(entry, site_name)) as session:
        if site_name is None and submission.site_here(entry) is None:
            note = session.hello.site_note
            reported = submission.reported_site(session, entry, os.environ)
            if reported != site:
                jobs = submission.all_planned(specs, reported)
                codes = _agreed(entry, jobs, agrees=agrees)
        for job, code in zip(jobs, codes, strict=True):
            for words in submission.paths_here(job.plan, code):
                report(words)
        yield _Ready(jobs, codes, session, note)


def _agreed(entry: Entry, jobs: list[submission.Planned], *, agrees: bool) -> list[Travelling]:
    """The code of each job, which the user agrees to send."""
    codes = submission.codes_of(jobs, Path(working_directory()), os.environ)
    for job, code in {id(code): (job, code) for job, code in zip(jobs, codes, strict=True)}.values():
        _check_agreed(entry, job, code, agrees=agrees)
    return codes


def _check_agreed(entry: Entry, job: submission.Planned, code: Travelling, *, agrees: bool) -> None:
    """Ask the user whether this code may be sent, unless an earlier agreement covers it.

    Raises:
        CastoffError: the user does not agree.
    """
    selected = bool(job.plan.snapshot and job.plan.snapshot.paths)
    before = agreed_bytes(entry, code.tree.top, os.environ)
    why = needs_agreement(code, before, selected=selected)
    if why is None:
        return
    if not agrees:
        report(f"{why}: {code.words}{code.left_out_words}")
        for line in top_level_words(code):
            report(line)
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise CastoffError(
                "nothing was sent; `git init` the project and list in .gitignore what is not code, or list "
                "the folders with code in the job: snapshot: {paths: [src]}; or agree to send all of this, "
                "by --yes or in a terminal, where castoff asks once"
            )
        if not click.confirm(f"Send this to {entry.name}?", err=True):
            raise CastoffError("nothing was sent")
    remember_agreement(entry, code.tree.top, code.tree.bytes, os.environ)


def machine_site(machine: Machine, typed: list[str], site_name: str | None) -> Site:
    """The site to plan with: the named one, the one in the machine's entry, or the one that its castoff
    reports.

    Raises:
        CastoffError: no site is known, or the machine's castoff cannot be reached.
    """
    entry = machine.entry
    if (site := _known_site(entry, site_name)) is None:
        with machine.session(typed, site=entry.site) as session:
            site = submission.reported_site(session, entry, os.environ)
    if site_name is None:
        report(f"site {site.name}: that of {entry.name}")
    return site


def _known_site(entry: Entry, site_name: str | None) -> Site | None:
    """The site as far as this machine knows it; None if the machine's castoff has never reported one."""
    if site_name is not None:
        return site_named(site_name)
    return submission.site_here(entry) or submission.remembered_site(entry, os.environ)


def _asked_site(entry: Entry, site_name: str | None) -> str | None:
    return entry.site if site_name is None and submission.site_here(entry) is None else None


def _dry_run(machine: Machine, specs: Sequence[JobSpec], site: Site, *, as_json: bool) -> int:
    name, jobs = machine.entry.name, submission.all_planned(specs, site)
    codes = submission.codes_of(jobs, Path(working_directory()), os.environ)
    for job, code in zip(jobs, codes, strict=True):
        would = dry_run(job.spec, site)
        if len(jobs) > 1:
            report(f"{job.spec.name}:")
        if as_json:
            plan = msgspec.to_builtins(would.plan)
            print_json({"plan": plan, "script": would.script, "command": would.command})
            continue
        print_script(would.script)
        size = f"{code.words}{code.left_out_words}"
        report(f"would send the code to {name}, except files that are there: {size}")
        report("would make a run directory there, CASTOFF_RUN_DIR, with this script as its job.sh, and run:")
        click.echo(would.command, err=True)
    return 0


def _print(machine: Machine, result: Submitted, note: str | None, *, follows: bool, as_json: bool) -> None:
    name = machine.entry.name
    if result.was_there:
        report(f"{name}: {result.run} was submitted by an earlier command; nothing was submitted again")
    for words in (result.note, note):
        if words:
            report(f"{name}: {words}")
    if as_json:
        facts = {"id": result.run, "job": result.job, "directory": result.directory}
        print_json({**facts, "node_hours": result.node_hours, "on": name})
        return
    hours = result.node_hours
    print_facts(
        run=result.run,
        on=f"{name} ({machine.entry.host})",
        job=f"{result.job} ({result.scheduler})",
        directory=result.directory,
        code=result.code,
        snapshot=result.snapshot,
        node_hours="no walltime, so no bound" if hours is None else f"at most {hours:.2f}",
    )
    if not follows:
        follow = " ".join(map(visible_word, machine.command("logs", "-f", result.run)))
        report(f"{name}: {result.run} submitted (job {result.job}); `{follow}` follows it")


def _print_group(machine: Machine, result: Grouped, note: str | None, *, as_json: bool) -> None:
    name, runs = machine.entry.name, result.jobs
    if all(one.was_there for one in runs.values()):
        report(f"{name}: {result.group} was submitted by an earlier command; nothing was submitted again")
    for words in dict.fromkeys([*(one.note for one in runs.values()), note]):
        if words:
            report(f"{name}: {words}")
    if as_json:
        jobs = [
            {"name": job, "id": one.run, "job": one.job, "directory": one.directory}
            for job, one in runs.items()
        ]
        print_json({"group": result.group, "jobs": jobs, "on": name})
        return
    for job, one in runs.items():
        before = ", submitted before" if one.was_there else ""
        click.echo(printable(f"{job}: {one.run}, job {one.job} ({one.scheduler}){before}"))
    hours = bound_words([one.node_hours for one in runs.values()])
    print_facts(group=result.group, on=f"{name} ({machine.entry.host})", node_hours=hours)


def _follow(machine: Machine, name: str) -> int:
    """Follow a run or a group."""
    logs = Passed(machine, "logs", ["-f", name])
    try:
        return follow_through(logs, os.environ)
    except KeyboardInterrupt:
        click.echo(err=True)
        again, end = (" ".join(machine.command(*words)) for words in (("logs", "-f", name), ("cancel", name)))
        report(f"{name} was not stopped: `{again}` follows it again, `{end}` ends it")
        return 130
