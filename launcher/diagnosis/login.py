"""All checks on a login node, in the order in which a job depends on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date

from castoff.launcher.config.site import Site
from castoff.launcher.diagnosis import interpreter, profile, run_folder, scheduling, storage
from castoff.launcher.diagnosis.finding import Finding, Findings
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.errors import Problem
from castoff.launcher.preflight.presence import missing
from castoff.launcher.schedulers.machine_info import Difference, MachineInfo
from castoff.launcher.schedulers.registry import queued

Compare = Callable[[Site, MachineInfo], Sequence[Difference]]
"""Where a profile differs from what its scheduler reports about the machine."""


def findings(subject: Subject, compare: Compare) -> Findings:
    """What a job would meet here; nothing is submitted."""
    with ThreadPoolExecutor(2) as pool:  # what hangs keeps nothing else waiting
        of_storage = pool.submit(lambda: [*storage.findings(subject)])
        of_python = pool.submit(lambda: [*interpreter.findings(subject)])
        info, found = _scheduler(subject)
        yield from found
        differences = None if info is None else compare(subject.site, info)
        yield from profile.findings(subject, differences, date.fromtimestamp(time.time()))
        yield from of_storage.result()
        yield from run_folder.index(subject)
        yield from run_folder.locks(subject)
        yield from of_python.result()
    yield from _files(subject)
    yield from run_folder.trust(subject)


def _scheduler(subject: Subject) -> tuple[MachineInfo | None, list[Finding]]:
    own = queued(subject.site.scheduler)
    refused = [*scheduling.plan_problems(subject)]
    if own is None:
        fact = "none: castoff itself runs jobs of this site, on this host"
        return None, [Finding("scheduler", "ok", fact), *refused]
    found = [*scheduling.commands(own, subject)]
    if found:
        return None, [*found, *refused]
    info, answered = scheduling.daemon(own, subject)
    if info is None:
        return None, [*answered, *refused]
    asked = [*scheduling.account(own, subject, info), *scheduling.queue(subject, info)]
    asked += scheduling.hosts(subject, info)
    return info, [*answered, *asked, *refused, *scheduling.trial(own, subject)]


def _files(subject: Subject) -> Iterator[Finding]:
    """What the job names and is not here."""
    if subject.plan is None:
        return
    problems, warnings = missing(
        subject.given, subject.site, subject.plan, subject.directory, subject.environ
    )
    for problem in problems:
        yield _of(problem, is_certain=True)
    for warning in warnings:
        yield _of(warning, is_certain=False)
    if not problems and not warnings:
        yield Finding("files", "ok", "all that the job names is here")


def _of(problem: Problem, *, is_certain: bool) -> Finding:
    fact, _, fix = problem.message.partition(": ")
    where = f"{problem.where}: " if ":" in problem.where else ""  # a line of the job file
    fix = fix or f"change {problem.path}, or put it there before the job starts"
    return Finding("files", "problem" if is_certain else "warning", f"{where}{problem.path} {fact}", fix)
