"""The scheduler: its commands and daemons, the job's account and queue, and whether it would take the job."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence

from castoff.launcher.config.quantities import clock
from castoff.launcher.diagnosis.finding import Finding, Findings, Status
from castoff.launcher.diagnosis.subject import Subject
from castoff.launcher.errors import CastoffError
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.base_queue import user_name
from castoff.launcher.schedulers.command import SchedulerUnreachable, run_to_end
from castoff.launcher.schedulers.machine_info import MachineInfo, QueueInfo
from castoff.launcher.schedulers.machine_questions import QueryFailed, ask, questions_of
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import counted
from castoff.launcher.typed.suggestion import nearest

PATIENCE = 15.0
"""Seconds for an answer of the scheduler; a submission may take longer."""

_SLOW = 5.0
"""Seconds from which an answer is slow: castoff asks often."""

_SHOWN = 12
"""Names of queues or accounts in a line."""


def commands(scheduler: QueuedScheduler, subject: Subject) -> Findings:
    """Whether the programs are here by which castoff submits, asks and cancels."""
    try:
        scheduler.check_reachable(subject.environ)
    except CastoffError as error:
        fact, _, remedy = str(error).partition(": ")
        yield Finding("scheduler", "problem", fact, remedy)
        return
    needed = [scheduler.queue(subject.environ).cancel_command[0]]
    needed += [one.argv[0] for one in questions_of(scheduler.name) if not one.optional]
    path = subject.environ.get("PATH", "")
    missing = [one for one in dict.fromkeys(needed) if shutil.which(one, path=path) is None]
    if missing:
        submit = shutil.which(scheduler.submit_command[0], path=path)
        fact = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on PATH here"
        yield Finding(
            "scheduler", "problem", fact, f"they should be beside {submit}: ask your site's support"
        )


def daemon(scheduler: QueuedScheduler, subject: Subject) -> tuple[MachineInfo | None, list[Finding]]:
    """What the scheduler says of its machine, and how it answered."""
    begun = time.monotonic()
    try:
        info = ask(subject.site, subject.environ, patience=PATIENCE)
    except QueryFailed as error:
        fact = str(error).removeprefix(f"site {subject.site.name}: ")
        first = " ".join(questions_of(scheduler.name)[0].argv)
        fix = f"castoff can submit nothing until `{first}` answers; if that lasts, tell your site's support"
        return None, [Finding("scheduler", "problem", f"{scheduler.title} does not answer: {fact}", fix)]
    took = time.monotonic() - begun
    named = " ".join(filter(None, (scheduler.title, info.version)))
    fact = f"{named} answers in {took:.1f} s"
    found = [Finding("scheduler", "ok", fact)]
    if took > _SLOW and not info.unanswered:  # which says it itself
        fix = "submit many jobs as one array, and let `castoff wait` ask rather than a loop of yours"
        found = [Finding("scheduler", "warning", f"{fact}, which is slow", fix)]
    for about, why in info.unanswered:
        if about not in info.lacks:
            fix = "castoff does without; account and limits are checked as far as the others say"
            found.append(Finding("scheduler", "unknown", f"nothing is known of {about}: {why}", fix))
    return info, found


def account(scheduler: QueuedScheduler, subject: Subject, info: MachineInfo) -> Findings:
    """Whether the scheduler knows the job's account, for this user."""
    named, me = subject.spec.account, user_name(str(os.geteuid()))
    user = info.user
    if user is None:
        if "user" in info.lacks:
            yield Finding("account", "ok", f"{scheduler.title} keeps no accounts here")
        elif named is not None:
            fix = "`castoff submit` shows what it says; your site's page or support lists your accounts"
            fact = f"{named}: {scheduler.title} does not say which accounts {me} has"
            yield Finding("account", "unknown", fact, fix)
        return
    theirs = _listed(user.accounts)
    refuses: Status = "problem" if info.enforces_accounts else "warning"
    if not user.accounts:
        fix = f"ask your site's support to add {me} to an account"
        yield Finding("account", refuses, f"{scheduler.title} knows no account of {me}", fix)
    elif named is None:
        yield Finding("account", "ok", f"none is given, so {user.default_account} pays; {me} has {theirs}")
    elif named in user.accounts:
        yield Finding("account", "ok", f"{named} is one of {me}'s: {theirs}")
    else:
        fix = subject.setting("account", nearest(named, user.accounts) or user.accounts[0])
        yield Finding("account", refuses, f"{named} is not an account of {me}, who has {theirs}", fix)


def _queue_of(subject: Subject) -> str | None:
    """The queue that the job names, that castoff has chosen for it, or that is the site's default."""
    return subject.plan.queue if subject.plan else subject.spec.queue or subject.site.default_queue


def queue(subject: Subject, info: MachineInfo) -> Findings:
    """Whether the job's queue is there, is up, and takes a job of this size."""
    names = _queue_of(subject) or info.default_queue
    if not info.queues:
        return
    if names is None:
        queues = _listed([name for name, one in info.queues.items() if one.offered])
        fix = subject.setting("queue", "NAME")
        yield Finding("queue", "problem", f"none is given, and there is no default; there are: {queues}", fix)
        return
    for name in names.split(","):  # Slurm takes the first that has room
        known = subject.site.queues.get(name)
        listed = info.queues.get((known and known.listed_as) or name)
        if listed is None:
            others = [one for one, about in info.queues.items() if about.offered]
            meant = nearest(name, others) or next(iter(others), "NAME")
            fact = f"{name} does not exist here; there are: {_listed(others)}"
            yield Finding("queue", "problem", fact, subject.setting("queue", meant))
        else:
            yield from _state(name, listed, subject, info)


def hosts(subject: Subject, info: MachineInfo) -> Findings:
    """Which hosts get no jobs now, where this job might have got them, and whether enough are left."""
    names = _queue_of(subject) or info.default_queue or ""
    known = {name: subject.site.queues.get(name) for name in names.split(",") if name}
    listed = {(own and own.listed_as) or name for name, own in known.items()}

    def of_job(queues: tuple[str, ...]) -> bool:
        return not (queues and listed) or not listed.isdisjoint(queues)

    away = [one for one in info.away if of_job(one.queues)]
    if not away:
        return
    there = sum(kind.nodes for kind in info.nodes if of_job(kind.queues))
    words = [f"{one.name} ({one.state}{one.reason and f': {one.reason}'})" for one in away]
    fact = f"{len(away)} of {max(there, len(away))} hosts get no jobs now: {_listed(words)}"
    left = max(there - len(away), 0)
    if subject.plan is None or subject.plan.nodes <= left:
        yield Finding("hosts", "ok", fact)
        return
    fix = f"the job, of {counted(subject.plan.nodes, 'node')}, waits until they are back"
    if left:
        fix += f", or ask for fewer: {subject.setting('nodes', str(left))}"
    yield Finding("hosts", "warning", fact, fix)


def _state(name: str, about: QueueInfo, subject: Subject, info: MachineInfo) -> Findings:
    open_ones = [one for one, other in info.queues.items() if other.accepts_jobs and other.starts_jobs]
    elsewhere = next((one for one in open_ones if info.queues[one].offered), None)
    other = f", or use another: {subject.setting('queue', elsewhere)}" if elsewhere else ""
    notes = "".join(f"; {note}" for note in about.notes)
    if not about.accepts_jobs:
        yield Finding("queue", "problem", f"{name} takes no jobs now{notes}", f"wait until it does{other}")
    elif not about.starts_jobs:
        fix = f"a job waits there until it does{other}"
        yield Finding("queue", "problem", f"{name} starts no jobs now{notes}", fix)
    elif misfit := _misfit(about, subject):
        fix, fact = misfit
        yield Finding("queue", "problem", f"{name} {fact}{notes}", fix)
    elif about.accounts and subject.spec.account and subject.spec.account not in about.accounts:
        fix = subject.setting("account", about.accounts[0]) + other
        fact = f"{name} takes jobs of the accounts {_listed(about.accounts)} alone"
        yield Finding("queue", "problem", fact, fix)
    else:
        yield Finding("queue", "ok", f"{name} is up{_limits(about)}{notes}")


def _misfit(about: QueueInfo, subject: Subject) -> tuple[str, str] | None:
    """What to do, and why a queue does not take a job of this size."""
    plan = subject.plan
    if plan is None:
        return None
    for bound, wanted, word in (
        (about.max_nodes, plan.nodes, "most"),
        (about.min_nodes, plan.nodes, "least"),
    ):
        if bound is not None and (wanted > bound if word == "most" else wanted < bound):
            fact = f"takes {counted(bound, 'node')} at {word}, and the job asks for {wanted}"
            return subject.setting("nodes", str(bound)), fact
    if plan.walltime is None:
        return None
    for limit, longer in ((about.max_walltime, True), (about.min_walltime, False)):
        if limit is not None and (plan.walltime > limit if longer else plan.walltime < limit):
            word = "most" if longer else "least"
            fact = f"takes {clock(limit)} at {word}, and the job asks for {clock(plan.walltime)}"
            return subject.setting("walltime", f'"{clock(limit)}"'), fact
    return None


def _limits(about: QueueInfo) -> str:
    nodes = f", up to {counted(about.max_nodes, 'node')}" if about.max_nodes else ""
    return f"{nodes} for {clock(about.max_walltime)}" if about.max_walltime else nodes


def trial(scheduler: QueuedScheduler, subject: Subject) -> Findings:
    """Whether the scheduler says itself that it would take this script; nothing is queued."""
    if not scheduler.trial_command or not subject.script:
        return
    with tempfile.NamedTemporaryFile("w", prefix="castoff-doctor-", suffix=".sh", encoding="utf-8") as file:
        file.write(subject.script)
        file.flush()
        argv = [*scheduler.trial_command, file.name]
        try:
            done = run_to_end(argv, PATIENCE, subject.environ)
        except SchedulerUnreachable as why:
            yield Finding("job", "unknown", f"{' '.join(scheduler.trial_command)}: {why}", "try again later")
            return
    said = " ".join((done.stderr or done.stdout).split()).replace(file.name, "the script")
    said = re.sub(r"\b1[0-9]{9}\b", lambda found: _moment(int(found[0])), said)
    shown = f"`{' '.join(scheduler.trial_command)}` says: {said[:300]}"
    if done.returncode:
        fix = scheduler.remedy(said) or f"the script: castoff render {subject.words}"
        yield Finding("job", "problem", shown, fix)
    else:
        yield Finding("job", "ok", shown)


def _moment(at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def plan_problems(subject: Subject) -> Findings:
    """What castoff itself would refuse, before it asks anybody."""
    for problem in subject.problems:
        fact, _, fix = problem.message.partition("; ")
        fix = fix or f"castoff sites {visible_word(subject.site.name)} shows what this site takes"
        where = f"{problem.where}: " if ":" in problem.where else ""  # a line of the job file
        yield Finding("job", "problem", f"{where}{problem.path} {fact}", fix)
