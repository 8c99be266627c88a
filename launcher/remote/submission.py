"""Submit a job on another machine: plan and render it on this one, send its code, and have it
submitted once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Snapshot
from castoff.launcher.config.references import references
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError, InvalidInput, Problem, printable
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import Script, rendered
from castoff.launcher.preflight.named_files import (
    Module,
    Named,
    changes_folder,
    expands,
    makes_nothing,
    program,
)
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.remote.code import Travelling, contents, to_send_words, travelling
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.machine import Machine, RefusedByMachine, Session, remedy
from castoff.launcher.remote.messages import Lacking, Order, OrderedJob, Stored, Submitted, UnexpectedMessage
from castoff.launcher.remote.remembered import (
    pending,
    remember_site,
    remember_variables,
    site_fields,
    unanswered,
)
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.secrets import secrets
from castoff.launcher.schedulers.choice import check_profile, profile
from castoff.launcher.typed.suggestion import did_you_mean

Say = Callable[[str], object]


class Planned(NamedTuple):
    """A job planned and rendered for a site."""

    spec: JobSpec
    site: Site
    plan: Plan
    script: Script


def planned(spec: JobSpec, site: Site) -> Planned:
    """Plan and render a job for a site, and check the script's syntax.

    Raises:
        InvalidInput: the job cannot run on that site.
    """
    plan, scheduler = decide(spec, site)
    script = rendered(plan, scheduler)
    check_syntax(plan, script, spec)
    return Planned(spec, site, plan, script)


def all_planned(specs: Iterable[JobSpec], site: Site) -> list[Planned]:
    """Plan and render jobs for a site.

    Raises:
        InvalidInput: with every problem of the jobs.
    """
    jobs, problems = list[Planned](), list[Problem]()
    for spec in specs:
        try:
            jobs.append(planned(spec, site))
        except InvalidInput as error:
            problems += error.problems
    if problems:
        raise InvalidInput(list(dict.fromkeys(problems)))
    return jobs


# The site


def site_here(entry: Entry) -> Site | None:
    """The profile that the entry names, if this machine has it.

    Raises:
        InvalidInput: with every problem of the profile.
    """
    search = Search.here()
    if entry.site is None or entry.site not in search.profiles():
        return None
    return profile(entry.site, search)


def remembered_site(entry: Entry, environ: Mapping[str, str]) -> Site | None:
    """The profile that the machine's castoff reported last; None if there is none or this castoff cannot use
    it.
    """
    fields = site_fields(entry, environ)
    with contextlib.suppress(CastoffError):
        return None if fields is None else _site_of(fields, entry)
    return None


def reported_site(session: Session, entry: Entry, environ: Mapping[str, str]) -> Site:
    """The profile that the machine's castoff reports; it is recorded for the next submission.

    Raises:
        CastoffError: the machine's castoff reports no profile, or this castoff cannot use it.
    """
    hello = session.hello
    if hello.site is None:
        raise CastoffError(f"{entry.name}: {hello.site_why}")
    site = _site_of(hello.site, entry)
    check_profile(site)
    remember_site(entry, hello.site, environ)
    return site


_ABOUT_HERE = ("env_from", "snapshot", "templates")
"""Fields of a job by which files or variables of this machine are read: a profile from another machine may
not set them.
"""

_MAX_VALUES = 3_000
"""The largest number of values in a profile from another machine; castoff's longest own profile has 950."""

_LONGEST_ERROR = 2_000
"""Limit of the characters shown of an error about such a profile."""


def _count_values(data: object) -> int:
    """Count the values and names in plain data, however deeply nested."""
    count, left = 0, [data]
    while left:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
    return count


def _site_of(fields: dict[str, Any], entry: Entry) -> Site:
    """Make a profile from the fields that another machine has reported.

    Raises:
        CastoffError: this castoff cannot use the profile.
    """
    if _count_values(fields) > _MAX_VALUES:
        raise CastoffError(
            f"{entry.name}: the profile that castoff there reports has more than {_MAX_VALUES:,} values, "
            "so it is not used; name one of your own with --site of `castoff on add`"
        )
    try:
        site = Site(**fields)
    except (InvalidInput, TypeError) as error:
        raise CastoffError(
            f"{entry.name}: castoff here cannot use the profile that the one there reports: "
            f"{printable(str(error)[:_LONGEST_ERROR])}\nif the two castoffs differ, {remedy(entry)}"
        ) from error
    for field in _ABOUT_HERE:
        if getattr(site.defaults, field) != getattr(JobSpec(), field):
            raise CastoffError(
                f"{entry.name}: site {printable(site.name)}: defaults.{field} would read files or "
                "variables of this machine, so it is not taken from a profile there: copy the profile to "
                f"~/.config/castoff/sites here, and name it with --site of `castoff on add`"
            )
    return site


# The code


def codes_of(jobs: list[Planned], directory: Path, environ: Mapping[str, str]) -> list[Travelling]:
    """The code that each job runs, ready to be sent; jobs with the same `snapshot` share it.

    Raises:
        InvalidInput: the code does not contain a job's program or templates.
        CastoffError: the code cannot be read, or there is too much of it.
    """
    hidden = [name for job in jobs for name in job.plan.env_from]
    by_choice: dict[bytes, Travelling] = {}
    codes, problems = list[Travelling](), list[Problem]()
    for job in jobs:
        asked = job.plan.snapshot or Snapshot()
        choice = msgspec.json.encode(asked)
        if choice not in by_choice:
            by_choice[choice] = travelling(directory, asked, environ, hidden)
        codes.append(by_choice[choice])
        try:
            _check_program(job.plan, codes[-1], directory)
            _templates(job.spec, codes[-1])
        except InvalidInput as error:
            where = str(job.spec.name) if len(jobs) > 1 else ""
            problems += [problem._replace(where=where) for problem in error.problems]
    if problems:
        raise InvalidInput(problems)
    return codes


def _check_program(plan: Plan, code: Travelling, directory: Path) -> None:
    """Check that the code contains the job's program, if a relative path names it."""
    named = program(plan.command)
    if plan.parameters is not None and any(map(references, (*plan.command, plan.workdir or ""))):
        return  # each member may have another
    if named is None or isinstance(named, Module) or not isinstance(named, Named):
        return
    word = named.word
    outside = word.startswith("/") or expands(word) or (plan.workdir or "").startswith(("/", "~"))
    if (
        outside
        or (named.runs and "/" not in word)
        or changes_folder(plan.setup)
        or not makes_nothing(plan.setup)
    ):
        return
    within = os.path.normpath(os.path.join(code.tree.here, plan.workdir or ".", word))  # noqa: PTH118
    if within in code.tree.files or within.startswith("../"):
        return
    if (directory / (plan.workdir or ".") / word).exists():
        if any(within.startswith(name.rstrip("/")) for name in code.tree.withheld):
            why = "its name looks like a secret's"
            fix = f"git add it, or name it in the job: snapshot: {{paths: [., {printable(word)}]}}"
        else:
            why = "git ignores it"
            fix = f"remove it from .gitignore, or add it anyway: git add -f {printable(word)}"
        message = f"is {word!r}, which is not sent, because {why}: {fix}"
    else:
        folder = os.path.normpath(os.path.join(code.tree.here, plan.workdir or "."))  # noqa: PTH118
        near = [os.path.relpath(name, folder) for name in code.tree.files]
        where = directory / (plan.workdir or ".")
        message = f"is {word!r}, which is not in {where}{did_you_mean(word, near)}"
    raise InvalidInput([Problem("", named.field, message)])


def paths_here(plan: Plan, code: Travelling) -> list[str]:
    """Notes about arguments of the command that are absolute paths of the code's files on this machine."""
    notes = []
    for number, word in enumerate(plan.command):
        inside = os.path.relpath(os.path.realpath(word), code.tree.top) if word.startswith("/") else ".."
        if inside.split("/")[0] != "..":
            shown = os.path.relpath(inside, os.path.normpath(code.tree.here))
            notes.append(
                f"command.{number}: {printable(word)} is a path on this machine; in the code that is sent, "
                f"it is {printable(shown)}"
            )
    return notes


def _templates(spec: JobSpec, code: Travelling) -> str | None:
    """The job's folder of templates, relative to the code's folder."""
    if spec.templates is None:
        return None
    within = os.path.relpath(os.path.realpath(spec.templates), code.tree.top)
    if not any(name.startswith(f"{within}/") for name in code.tree.files):
        raise InvalidInput(
            [
                Problem(
                    "",
                    "templates",
                    f"is {spec.templates!r}, which is not sent: move it into the code's folder",
                )
            ]
        )
    return within


def send_code(session: Session, code: Travelling, say: Say) -> Stored:
    """Send the files of the code that the machine lacks.

    Raises:
        RefusedByMachine: the machine cannot store the code.
        ConnectionLost: the connection broke; files that have arrived are not sent again.
    """
    answer = session.ask(code.code, "castoff sent the list of files")
    lacking = answer.numbers if isinstance(answer, Lacking) else []
    if len({*lacking}) < len(lacking) or not {*lacking} <= {*range(len(code.code.files))}:
        raise UnexpectedMessage("it asked for files that are not in the list")
    say(to_send_words(code, lacking))
    if isinstance(answer, Lacking):
        session.doing = "castoff sent the code; the files that arrived stay there"
        for part in contents(code, lacking, say):
            session.send(part)
        answer = session.answer()
    if not isinstance(answer, Stored):
        raise UnexpectedMessage("it did not confirm that it has the code")
    return answer


# The job


def submit_there(
    machine: Machine,
    job: Planned,
    code: Travelling,
    session: Session,
    environ: Mapping[str, str],
    say: Say,
    *,
    runs_dir: str | None = None,
) -> Submitted:
    """Send the code and submit the job. Calling this again after a broken connection does not submit it
    twice.

    Raises:
        CastoffError: a variable of `env_from` is not set on this machine.
        RefusedByMachine: the machine's castoff or its scheduler refuses the job.
        ConnectionLost: the connection broke; calling this again finds the run if there is one.
    """
    entry = machine.entry
    secrets(job.plan.env_from, environ)  # raises an error before anything is sent
    remember_variables(entry, job.plan.env_from, environ)
    stored = send_code(session, code, say)
    if stored.note:
        say(stored.note)
    sent = ordered(job, code, environ)
    identity = [sent.script, code.code.project, code.code.name, code.tree.here, runs_dir]
    submission = json.dumps(identity).encode() + sent.fields
    with pending(entry, submission, job.plan.name, environ) as chosen:
        if chosen.is_old:
            say(f"{chosen.run}: the machine did not confirm its submission; castoff asks for it now")
        others = unanswered(entry, environ)
        order = Order(
            run=chosen.run,
            site=plain(job.site),
            jobs=[sent],
            runs_dir=runs_dir,
            earlier=[other.run for other in others],
        )
        try:
            submitted = session.ask(order, f"{chosen.run} was submitted, which may have arrived")
        except RefusedByMachine as refusal:
            if refusal.is_final:
                chosen.answered()
            raise
        if not isinstance(submitted, Submitted):
            raise UnexpectedMessage("it did not report what became of the job")
        chosen.answered()
        for other in others:
            if other.run in submitted.earlier:
                job_id = submitted.earlier[other.run]
                state = f"was submitted (job {job_id})" if job_id else "does exist"
                say(f"{other.run}: {state}, although its command got no answer")
            other.answered()
    return submitted


def ordered(job: Planned, code: Travelling, environ: Mapping[str, str], number: int = 0) -> OrderedJob:
    """A job as it is sent; `number`: that of its code."""
    templates = _templates(job.spec, code)
    return OrderedJob(
        fields=plain(job.spec),
        templates=None if templates is None else os.fsencode(templates),
        script=hashlib.sha256(job.script.text.encode(errors="surrogateescape")).hexdigest(),
        variables={name: os.fsencode(environ[name]) for name in job.plan.env_from},
        code=number,
    )


def plain(fields: msgspec.Struct) -> bytes:
    """A job or a profile as it is sent."""
    return json.dumps(msgspec.to_builtins(fields)).encode()
