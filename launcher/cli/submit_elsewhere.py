"""castoff --on NAME submit: the options, the questions to the user, and the printed facts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from castoff.launcher.cli.output import is_terminal, print_facts, print_json, print_script, report
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.remote import submission
from castoff.launcher.remote.code import Travelling, needs_agreement, top_level_words
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.messages import Submitted
from castoff.launcher.remote.passing import Passed, run
from castoff.launcher.remote.remembered import agreed_bytes, remember_agreement
from castoff.launcher.schedulers.choice import site_named
from castoff.launcher.submission.submit import dry_run, working_directory
from castoff.launcher.text.quoting import visible_word


def submit_elsewhere(
    machine: Machine,
    typed: list[str],
    spec: JobSpec,
    site_name: str | None,
    *,
    follows: bool,
    dry: bool,
    runs_dir: Path | None,
    as_json: bool,
    agrees: bool,
) -> int:
    """Submit a job on another machine, print the run, and return the exit code.

    `agrees`: the user agrees to send any code.

    Raises:
        CastoffError: the job cannot be submitted.
    """
    entry, name = machine.entry, machine.entry.name
    if runs_dir is not None and not runs_dir.is_absolute():
        context = click.get_current_context()
        context.fail(f"--runs-dir is {str(runs_dir)!r}, a folder on {name}: give its whole path there")
    if dry:
        return _dry_run(name, spec, machine_site(machine, typed, site_name), as_json=as_json)
    site = _known_site(entry, site_name)
    directory = Path(working_directory())
    job = submission.planned(spec, site) if site else None
    code = submission.code_of(job, directory, os.environ) if job else None
    if job and code:
        _check_agreed(entry, job, code, agrees=agrees)
    note = None
    with machine.session(typed, site=_asked_site(entry, site_name)) as session:
        if site_name is None and submission.site_here(entry) is None:
            note = session.hello.site_note
            reported = submission.reported_site(session, entry, os.environ)
            if reported != site:
                job, code = submission.planned(spec, reported), None
        assert job is not None
        if code is None:
            code = submission.code_of(job, directory, os.environ)
            _check_agreed(entry, job, code, agrees=agrees)
        for words in submission.paths_here(job.plan, code):
            report(words)
        result = submission.submit_there(
            machine,
            job,
            code,
            session,
            os.environ,
            report,
            runs_dir=None if runs_dir is None else str(runs_dir),
        )
    _print(machine, result, note, follows=follows, as_json=as_json)
    return _follow(machine, result.run) if follows else 0


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


def _dry_run(name: str, spec: JobSpec, site: Site, *, as_json: bool) -> int:
    would = dry_run(spec, site)
    check_syntax(would.plan, would.rendered)
    job = submission.Planned(spec, site, would.plan, would.rendered)
    code = submission.code_of(job, Path(working_directory()), os.environ)
    if as_json:
        plan = msgspec.to_builtins(would.plan)
        print_json({"plan": plan, "script": would.script, "command": would.command})
        return 0
    print_script(would.script)
    report(f"would send the code to {name}, except files that are there: {code.words}{code.left_out_words}")
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


def _follow(machine: Machine, run_id: str) -> int:
    logs = Passed(machine, "logs", ["-f", run_id])
    try:
        return run(logs, os.environ)
    except KeyboardInterrupt:
        click.echo(err=True)
        again, end = (
            " ".join(machine.command(*words)) for words in (("logs", "-f", run_id), ("cancel", run_id))
        )
        report(f"{run_id} was not stopped: `{again}` follows it again, `{end}` ends it")
        return 130
