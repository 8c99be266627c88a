"""Checks the scheduler: commands, daemon, profile, the job's account and queue, and a trial submission."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date

from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Fact
from castoff.launcher.diagnosis.finding import Finding, Findings, Status, Subject
from castoff.launcher.errors import CastoffError
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.base_queue import user_name
from castoff.launcher.schedulers.choice import not_described
from castoff.launcher.schedulers.command import SchedulerUnreachable, run_to_end
from castoff.launcher.schedulers.machine_info import Difference, MachineInfo, QueueInfo
from castoff.launcher.schedulers.machine_questions import QueryFailed, ask, questions_of
from castoff.launcher.schedulers.registry import queued, title_of
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import counted
from castoff.launcher.typed.suggestion import nearest

PATIENCE = 15.0
"""Seconds to wait for the scheduler's answer."""

_SLOW = 5.0
"""Seconds above which an answer is slow, since castoff asks often."""

_SHOWN = 12
"""The maximum number of queues or accounts that a line names."""

_DIFFERENCES_SHOWN = 3

_OLD_DAYS = 365
"""Days after which a limit of a profile may no longer hold."""


def commands(scheduler: QueuedScheduler, subject: Subject) -> Findings:
    """Check that the commands for submitting, querying and cancelling are on PATH; no finding if they are."""
    try:
        scheduler.check_reachable(subject.environ)
    except CastoffError as error:
        fact, _, remedy = str(error).partition(": ")
        yield Finding("scheduler", "problem", fact, remedy)
        return
    needed = [scheduler.queue(subject.environ).cancel_command[0]]
    needed += [question.argv[0] for question in questions_of(scheduler.name) if not question.optional]
    path = subject.environ.get("PATH", "")
    missing = [program for program in dict.fromkeys(needed) if shutil.which(program, path=path) is None]
    if missing:
        submit = shutil.which(scheduler.submit_command[0], path=path)
        fact = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on PATH here"
        yield Finding(
            "scheduler", "problem", fact, f"they should be in the folder of {submit}: ask your site's support"
        )


def daemon(scheduler: QueuedScheduler, subject: Subject) -> tuple[MachineInfo | None, list[Finding]]:
    """The scheduler's report about the machine, and findings about its answers."""
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
    findings = [Finding("scheduler", "ok", fact)]
    if took > _SLOW and not info.unanswered:  # unanswered queries have their own findings
        fix = "submit many jobs as one array, and use `castoff wait` instead of your own polling loop"
        findings = [Finding("scheduler", "warning", f"{fact}, which is slow", fix)]
    for about, reason in info.unanswered:
        if about not in info.lacks:
            fix = "castoff works without this answer; it checks the account and limits by other answers"
            findings.append(Finding("scheduler", "unknown", f"nothing is known about {about}: {reason}", fix))
    return info, findings


def account(scheduler: QueuedScheduler, subject: Subject, info: MachineInfo) -> Findings:
    """Check that the scheduler has the job's account for this user."""
    account, me = subject.spec.account, user_name(str(os.geteuid()))
    user = info.user
    if user is None:
        if "user" in info.lacks:
            yield Finding("account", "ok", f"{scheduler.title} keeps no accounts here")
        elif account is not None:
            fix = "`castoff submit` shows the scheduler's answer; your site's support knows your accounts"
            fact = f"{account}: {scheduler.title} does not report which accounts {me} has"
            yield Finding("account", "unknown", fact, fix)
        return
    theirs = _listed(user.accounts)
    refuses: Status = "problem" if info.enforces_accounts else "warning"
    if not user.accounts:
        fix = f"ask your site's support to add {me} to an account"
        yield Finding("account", refuses, f"{scheduler.title} has no account for {me}", fix)
    elif account is None:
        yield Finding(
            "account", "ok", f"the job names none, so {user.default_account} is charged; {me} has {theirs}"
        )
    elif account in user.accounts:
        yield Finding("account", "ok", f"{account} is one of {me}'s: {theirs}")
    else:
        fix = subject.setting("account", nearest(account, user.accounts) or user.accounts[0])
        yield Finding("account", refuses, f"{account} is not an account of {me}, who has {theirs}", fix)


def _queue_of(subject: Subject) -> str | None:
    """The queue that the job names or castoff chose, or else the site's default queue."""
    return subject.plan.queue if subject.plan else subject.spec.queue or subject.site.default_queue


def queue(subject: Subject, info: MachineInfo) -> Findings:
    """Check that the job's queue exists, is up, and accepts a job of this size."""
    names = _queue_of(subject) or info.default_queue
    if not info.queues:
        return
    if names is None:
        queues = _listed([queue for queue, about in info.queues.items() if about.offered])
        fix = subject.setting("queue", "NAME")
        yield Finding(
            "queue", "problem", f"the job names none, and there is no default; there are: {queues}", fix
        )
        return
    for name in names.split(","):  # Slurm uses the first queue with free nodes
        profiled = subject.site.queues.get(name)
        listed = info.queues.get((profiled and profiled.listed_as) or name)
        if listed is None:
            others = [other for other, about in info.queues.items() if about.offered]
            meant = nearest(name, others) or next(iter(others), "NAME")
            fact = f"{name} does not exist here; there are: {_listed(others)}"
            yield Finding("queue", "problem", fact, subject.setting("queue", meant))
        else:
            yield from _state(name, listed, subject, info)


def hosts(subject: Subject, info: MachineInfo) -> Findings:
    """Hosts of the job's queue that are unavailable, and whether enough others are left."""
    names = _queue_of(subject) or info.default_queue or ""
    profiled = {name: subject.site.queues.get(name) for name in names.split(",") if name}
    listed = {(queue and queue.listed_as) or name for name, queue in profiled.items()}

    def of_job(queues: tuple[str, ...]) -> bool:
        return not (queues and listed) or not listed.isdisjoint(queues)

    away = [host for host in info.away if of_job(host.queues)]
    if not away:
        return
    total = sum(kind.nodes for kind in info.nodes if of_job(kind.queues))
    words = [f"{host.name} ({host.state}{host.reason and f': {host.reason}'})" for host in away]
    fact = f"{len(away)} of {max(total, len(away))} hosts get no jobs now: {_listed(words)}"
    left = max(total - len(away), 0)
    if subject.plan is None or subject.plan.nodes <= left:
        yield Finding("hosts", "ok", fact)
        return
    fix = f"the job, of {counted(subject.plan.nodes, 'node')}, waits until they are back"
    if left:
        fix += f", or ask for fewer: {subject.setting('nodes', str(left))}"
    yield Finding("hosts", "warning", fact, fix)


def _state(name: str, about: QueueInfo, subject: Subject, info: MachineInfo) -> Findings:
    up = (
        queue
        for queue, reported in info.queues.items()
        if reported.offered and reported.accepts_jobs and reported.starts_jobs
    )
    alternative = next(up, None)
    other = f", or use another: {subject.setting('queue', alternative)}" if alternative else ""
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
        fact = f"{name} takes only jobs of the accounts {_listed(about.accounts)}"
        yield Finding("queue", "problem", fact, fix)
    else:
        yield Finding("queue", "ok", f"{name} is up{_limits(about)}{notes}")


def _misfit(about: QueueInfo, subject: Subject) -> tuple[str, str] | None:
    """A remedy, and the reason why a queue does not accept a job of this size; None if it does."""
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
    """Ask the scheduler whether it would accept the script, without queueing a job."""
    if not scheduler.trial_command or not subject.script:
        return
    with tempfile.NamedTemporaryFile("w", prefix="castoff-doctor-", suffix=".sh", encoding="utf-8") as file:
        file.write(subject.script)
        file.flush()
        argv = [*scheduler.trial_command, file.name]
        try:
            done = run_to_end(argv, PATIENCE, subject.environ)
        except SchedulerUnreachable as error:
            yield Finding(
                "job", "unknown", f"{' '.join(scheduler.trial_command)}: {error}", "try again later"
            )
            return
    answer = " ".join((done.stderr or done.stdout).split()).replace(file.name, "the script")
    answer = re.sub(r"\b1[0-9]{9}\b", lambda seconds: _moment(int(seconds[0])), answer)
    fact = f"`{' '.join(scheduler.trial_command)}` says: {answer[:300]}"
    if done.returncode:
        fix = scheduler.remedy(answer) or f"the script: castoff render {subject.words}"
        yield Finding("job", "problem", fact, fix)
    else:
        yield Finding("job", "ok", fact)


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def plan_problems(subject: Subject) -> Findings:
    """The problems for which castoff itself rejects the job."""
    for problem in subject.problems:
        fact, _, fix = problem.message.partition("; ")
        fix = fix or f"castoff sites {visible_word(subject.site.name)} shows the limits of this site"
        where = f"{problem.where}: " if ":" in problem.where else ""  # a line of the job file
        yield Finding("job", "problem", f"{where}{problem.path} {fact}", fix)


def profile(subject: Subject, differences: Sequence[Difference] | None, today: date) -> Findings:
    """Check the age of the profile's limits, and its differences from what the scheduler reports.

    `differences`: None if the scheduler has not answered.
    """
    site = subject.site
    if queued(site.scheduler) is None:
        return
    check = f"castoff sites check {visible_word(site.name)}"
    if lack := not_described(site):
        fact, _, fix = lack.removeprefix(f"site {site.name}: ").partition("; ")
        yield Finding("profile", "warning", f"{site.name} {fact}", fix)
        return
    shown = (differences or [])[:_DIFFERENCES_SHOWN]
    for difference in shown:
        theirs = f"{title_of(site.scheduler)} {difference.scheduler}"
        fact = f"{difference.field}: {site.name} has {difference.profile}, and {theirs}"
        yield Finding("profile", "warning", fact, f"{check} --update")
    if differences and (further := len(differences) - len(shown)):
        yield Finding("profile", "warning", f"{further} further differences", check)
    if differences:
        return
    oldest = min((fact.date for fact in _facts(site)), default=None)
    if oldest is None:
        yield Finding("profile", "ok", f"{site.name}: {site.description}")
    elif (today - date.fromisoformat(oldest)).days > _OLD_DAYS and differences is None:
        fact = f"some limits of {site.name} are from {oldest}"
        yield Finding("profile", "warning", fact, f"{check}, or read the site's documentation again")
    else:
        is_unknown = differences is None
        agrees = "not compared with the scheduler" if is_unknown else "and the scheduler reports the same"
        yield Finding("profile", "ok", f"{site.name}: its limits are from {oldest} or later, {agrees}")


def _facts(site: Site) -> Iterator[Fact]:
    yield from site.queues.values()
    yield from site.qos.values()
    yield from site.required
    yield from (fact for fact in (site.node, site.array) if fact is not None)
    yield from site.directive_values.values()
