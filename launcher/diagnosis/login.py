"""All checks on a login node, in the order in which a job depends on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from castoff.launcher.config.site import Site
from castoff.launcher.diagnosis import exposure, interpreter, scheduling, storage
from castoff.launcher.diagnosis.finding import Finding, Findings, Status, Subject
from castoff.launcher.errors import Problem
from castoff.launcher.preflight.presence import missing
from castoff.launcher.schedulers.machine_info import Difference, MachineInfo
from castoff.launcher.schedulers.registry import queued

Compare = Callable[[Site, MachineInfo], Sequence[Difference]]
"""A function that lists the values of a profile that differ from the scheduler's report."""


def findings(subject: Subject, compare: Compare) -> Findings:
    """Check this host, without submitting a job."""
    with ThreadPoolExecutor(2) as pool:  # so that checks of the scheduler do not wait for these
        of_storage = pool.submit(lambda: [*storage.findings(subject)])
        of_python = pool.submit(lambda: [*interpreter.findings(subject)])
        info, of_scheduler = _scheduler(subject)
        yield from of_scheduler
        differences = None if info is None else compare(subject.site, info)
        yield from scheduling.profile(subject, differences, date.fromtimestamp(time.time()))
        yield from of_storage.result()
        yield from storage.index(subject)
        yield from storage.locks(subject)
        yield from of_python.result()
    yield from _files(subject)
    yield from exposure.trust(subject)


def _scheduler(subject: Subject) -> tuple[MachineInfo | None, list[Finding]]:
    scheduler = queued(subject.site.scheduler)
    refused = [*scheduling.plan_problems(subject)]
    if scheduler is None:
        fact = "none: castoff itself runs jobs of this site, on this host"
        return None, [Finding("scheduler", "ok", fact), *refused]
    if missing_commands := [*scheduling.commands(scheduler, subject)]:
        return None, [*missing_commands, *refused]
    info, answered = scheduling.daemon(scheduler, subject)
    if info is None:
        return None, [*answered, *refused]
    limits = [*scheduling.account(scheduler, subject, info), *scheduling.queue(subject, info)]
    limits += scheduling.hosts(subject, info)
    return info, [*answered, *limits, *refused, *scheduling.trial(scheduler, subject)]


def _files(subject: Subject) -> Iterator[Finding]:
    """Check that the files that the job names exist."""
    if subject.plan is None:
        return
    problems, warnings = missing(
        subject.given, subject.site, subject.plan, subject.directory, subject.environ
    )
    for problem in problems:
        yield _file(problem, "problem")
    for warning in warnings:
        yield _file(warning, "warning")
    if not problems and not warnings:
        yield Finding("files", "ok", "every file that the job names exists")


def _file(problem: Problem, status: Status) -> Finding:
    fact, _, fix = problem.message.partition(": ")
    where = f"{problem.where}: " if ":" in problem.where else ""  # a line of the job file
    fix = fix or f"change {problem.path}, or put the file there before the job starts"
    return Finding("files", status, f"{where}{problem.path} {fact}", fix)
