"""submit_group(jobs, site): submits the jobs of a file, each once, in the order of their `after`.

The group's journal lists all jobs, with the directories of their runs, before the first is submitted. If
that is interrupted, whether by a refusal, a lost connection or SIGKILL, the same command continues: a job
whose run exists and has a job of the scheduler is left as it is, and each other is submitted once, under the
id that the journal gives it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher import clock
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Array
from castoff.launcher.config.job_group import JobGroup, name_of
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.process.files import make_folders, replace
from castoff.launcher.process.locks import NoLocks, locked
from castoff.launcher.runs.drafts import new_id
from castoff.launcher.runs.groups import Group, GroupJob, Groups
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.notices import NOTIFY
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory, runs_folder
from castoff.launcher.schedulers.choice import site_named
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.status.group_states import NOT_NEEDED, GroupStates
from castoff.launcher.status.settle import settle
from castoff.launcher.submission.caller import Caller, Place, here
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.dependencies import condition_holds
from castoff.launcher.submission.group_checks import check_jobs
from castoff.launcher.submission.resubmit import has_begun, resubmit
from castoff.launcher.submission.send import Interrupted
from castoff.launcher.submission.submit import Within, submit, working_directory
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import counted

_PATIENCE = 20.0
"""Seconds to find out whether an interrupted submission arrived."""

_PATIENCE_HERE = 0.2
"""Seconds to wait for another command of this user to end, who can see it."""

_POLL = 0.05


class Step(NamedTuple):
    """What became of one job of a group."""

    job: str
    run: RunDirectory
    was_there: bool = False
    """Whether an earlier command had submitted it."""


class GroupStopped(CastoffError):
    """The submission of a group ended before its last job."""

    def __init__(self, group: Group, why: str, code: int, command: str):
        self.exit_code = code
        sent = len(group.jobs) - len(group.unsent)
        left = f"{sent} of {counted(len(group.jobs), 'job')} of {group.id} submitted"
        super().__init__(f"{why}\n{left}; `{command}` submits the rest")


def submit_group(
    jobs: JobGroup,
    site: Site,
    *,
    runs_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
    new: bool = False,
    selection: tuple[str, ...] = (),
    on_step: Callable[[Step], None] = lambda _: None,
    caller: Caller | None = None,
) -> Group:
    """Submit the jobs of a group, each once, and return the group.

    If an earlier submission of the same file was interrupted, this one continues it, unless `new`. Jobs that
    were submitted must be the same as then. `selection`: the options that chose some of the file's jobs.
    `on_step` is called after each job. `caller`: the user on another machine who submits it.

    Raises:
        InvalidInput: a job cannot run at this site, or waits for a run that does not exist; nothing was sent.
        GroupStopped: some jobs were not submitted.
        CastoffError: the group cannot be submitted; nothing was sent.
    """
    environ = os.environ if environ is None else environ
    index = Index.of(environ)
    place = caller.place if caller else here(environ)
    known = check_jobs(jobs, site, index, runs_dir, place)
    groups = index.groups
    file = str(jobs.file.absolute()) if jobs.file else None
    directory = working_directory()
    folder = (runs_dir or runs_folder(environ)).resolve()
    with _alone(groups, jobs.name, caller.patience if caller else _PATIENCE_HERE):
        if caller:
            group = _of_caller(groups, caller)
        else:
            group = None if new else _unfinished(groups, jobs.name, file, directory, selection)
        if group is None:
            first = {
                "name": jobs.name,
                "file": file,
                "directory": directory,
                "site": site.name,
                "selection": list(selection),
                "command": caller.command if caller else None,
            }
            group_id = caller.group if caller else new_id(jobs.name)
            group = groups.begin(group_id, first, (_job(spec, known, folder) for spec in jobs.jobs))
        else:
            _continue(group, site, known, folder, _command(group, selection))
        command = _command(group, selection)
        fresh: set[str] = set()
        for job in [*group.jobs.values()]:
            with _stopping(group, job, command):
                _check_open(group, job, fresh)
                with place(known[job.job]) as placed:
                    step = _send(group, job, placed, site)
            if not step.was_there:
                fresh.add(job.job)
            on_step(step)
    return group


@contextlib.contextmanager
def _alone(groups: Groups, name: str, patience: float) -> Iterator[None]:
    """Let one process at a time submit groups of a name."""
    with contextlib.ExitStack() as stack:
        try:
            make_folders(groups.folder)
            stack.enter_context(locked(groups.folder / f".{name}.lock", patience=patience))
        except BlockingIOError:
            raise CastoffError(f"{name}: another castoff is submitting a group of this name now") from None
        except NoLocks:
            pass
        except OSError as error:
            raise CastoffError(f"{groups.folder}: cannot be written: {error.strerror}") from error
        yield


def _of_caller(groups: Groups, caller: Caller) -> Group | None:
    """The group that a caller has begun to submit, perhaps to its end, without getting an answer."""
    group = groups.read(caller.group)
    if group is not None and group.closed:
        raise CastoffError(f"{group.id} was cancelled; now `{caller.command}` begins a new group")
    return group


def _unfinished(
    groups: Groups, name: str, file: str | None, directory: str, selection: tuple[str, ...]
) -> Group | None:
    """The newest group of this file, if its submission was interrupted."""
    group = groups.newest(name) if file else None
    if group is None or group.closed or group.command or not group.unsent:
        return None
    same = (group.file, group.directory, group.selection) == (file, directory, list(selection))
    return group if same else None


def _job(spec: JobSpec, jobs: Mapping[str, JobSpec], folder: Path) -> GroupJob:
    after = {
        str(condition): [name for name in names if name in jobs] for condition, names in spec.after.items()
    }
    edges = {condition: names for condition, names in after.items() if names}
    return GroupJob(name_of(spec), str(folder / new_id(name_of(spec))), edges, _fields(spec))


def _fields(spec: JobSpec) -> dict[str, object]:
    """A job's fields as a journal holds them."""
    fields: dict[str, object] = msgspec.json.decode(msgspec.json.encode(spec))
    return fields


def _continue(group: Group, site: Site, known: Mapping[str, JobSpec], folder: Path, command: str) -> None:
    """Bring the journal of an interrupted group up to date with its file.

    Raises:
        CastoffError: a job that was submitted has changed since.
    """
    sent = [job for job in group.jobs.values() if _is_sent(group, job)]
    changed = [job.job for job in sent if job.job not in known or job.fields != _fields(known[job.job])]
    if sent and (changed or group.site != site.name):
        what = ", ".join(changed) if changed else f"the site ({group.site}, now {site.name})"
        raise CastoffError(
            f"{group.id} was interrupted after {counted(len(sent), 'job')}, which changed since: {what}\n"
            f"`castoff resubmit {group.id}` submits the rest as it was then; `{command} --new` begins anew"
        )
    names = ", ".join(job.job for job in sent) or "none of its jobs"
    report(f"{group.id}: its submission was interrupted, so this continues it; submitted before: {names}")
    left = {name: _job(spec, known, folder) for name, spec in known.items()}
    for job in sent:
        del left[job.job]
    if left.keys() == {*group.jobs}.difference(job.job for job in sent) and all(
        group.jobs[name].fields == job.fields for name, job in left.items()
    ):
        return
    for name, job in left.items():  # all of them, so that each still comes after those for which it waits
        before = group.jobs.get(name)
        group.put(before if before and before.fields == job.fields else job)
    for name in [name for name in group.jobs if name not in known]:
        group.drop(name)


def _is_sent(group: Group, job: GroupJob) -> bool:
    """Whether a job was submitted, or may have been."""
    run = job.directory
    record = run.submission() if run else None
    return job.sent or bool(record and record.group == group.id and (record.job or record.unclear))


def _send(group: Group, job: GroupJob, placed: Place, site: Site) -> Step:
    """Submit a job of a group, unless that has happened before."""
    if job.sent:
        return Step(job.job, RunDirectory(Path(job.run)), was_there=True)
    run = job.directory
    if run is not None and _arrived(run, placed.environ):
        group.mark_sent(job)
        return Step(job.job, run, was_there=True)
    if run is not None:
        resubmit(run, environ=placed.environ)
    else:
        runs = {name: Path(group.jobs[name].run) for name in job.waits_for if name in group.jobs}
        path = Path(job.run)
        run = submit(
            placed.spec,
            site,
            runs_dir=path.parent,
            environ=placed.environ,
            prepare=placed.prepare,
            run_id=path.name,
            is_code=placed.is_code,
            within=Within(group.id, runs, _messages(group, placed.spec)),
        )
    group.mark_sent(job)
    return Step(job.job, run)


def _messages(group: Group, spec: JobSpec) -> Path | None:
    """Make the folder of the records of messages that a group's runs share, with the number of its members;
    None if the job sends none.
    """
    if spec.notify is None:
        return None
    asking = [job.fields for job in group.jobs.values() if job.fields and job.fields.get("notify")]
    arrays = [msgspec.convert(fields["array"], Array) if fields.get("array") else None for fields in asking]
    members = sum(array.size if array else 1 for array in arrays)
    folder = group.path.with_suffix(f".{NOTIFY}")
    try:
        make_folders(folder)
        replace(folder / "group", f"{members} {group.name} {group.id}\n")
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be written: {error.strerror}") from error
    return folder


def _arrived(run: RunDirectory, environ: Mapping[str, str]) -> bool:
    """Whether the scheduler has a run whose submission was interrupted.

    Raises:
        CastoffError: that is not known yet.
    """
    record = run.submission()
    scheduler = queued(record.scheduler) if record else None
    if scheduler is None:  # castoff's own, which may have begun and not yet recorded its id
        clock.until(lambda: run.job is not None or not is_alive(run), _POLL, _PATIENCE)
        return run.job is not None
    with run.locked(patience=_PATIENCE):
        is_clear = settle(run, scheduler.queue(environ), patience=_PATIENCE)
    if not is_clear:
        raise CastoffError(
            f"{run.id}: {scheduler.title} does not say yet whether an interrupted submission arrived"
        )
    record = run.submission()
    return bool(record and record.job and record.error is None)


def _check_open(group: Group, job: GroupJob, fresh: set[str]) -> None:
    """Check that a job can still start: a run for which it waits, unless it is `fresh`, may have failed."""
    if job.sent:
        return
    for condition, names in job.after.items():
        for other in (group.jobs[name] for name in names if name in group.jobs and name not in fresh):
            run = other.directory
            if run is not None and condition_holds(condition, run) is False:
                raise CastoffError(
                    f"it could never start, as {other.job} is over and not as {condition} requires; "
                    f"`castoff resubmit {group.id}` restarts what failed"
                )


@contextlib.contextmanager
def _stopping(group: Group, job: GroupJob, command: str) -> Iterator[None]:
    """Report an error, or Ctrl-C, with what was submitted so far."""
    try:
        yield
    except Interrupted as error:
        group.mark_sent(job)
        if group.unsent:
            raise GroupStopped(group, str(error), error.exit_code, command) from error
        raise
    except KeyboardInterrupt:
        raise GroupStopped(group, f"interrupted at {job.job}", 130, command) from None
    except BlockingIOError:
        why = f"{job.job}: another castoff is submitting its run now"
        raise GroupStopped(group, why, 1, command) from None
    except CastoffError as error:
        raise GroupStopped(group, f"{job.job}: {error}", error.exit_code, command) from error


def _command(group: Group, selection: tuple[str, ...]) -> str:
    """The command line that continues a submission."""
    if group.command is not None:
        return group.command
    words = submit_words(group.file, selection) if group.file else ["resubmit", group.id]
    return " ".join(map(visible_word, ["castoff", *words]))


def submit_words(file: str, selection: tuple[str, ...]) -> list[str]:
    """The words after `castoff` that submit a file of jobs from the working directory."""
    return ["submit", os.path.relpath(file), *selection]


class Again(NamedTuple):
    """What a resubmission of a group did."""

    steps: list[Step]
    """The jobs that were started again, or submitted for the first time."""
    left: dict[str, str]
    """Why each other job was left as it is, by name."""


def resubmit_group(group: Group, *, environ: Mapping[str, str] | None = None) -> Again:
    """Start again what failed, and what waited for it; submit what was never submitted.

    Raises:
        CastoffError: a job cannot be submitted; those before it were.
    """
    environ = os.environ if environ is None else environ
    steps, left = list[Step](), dict[str, str]()
    started: set[str] = set()
    with _alone(Groups(group.path.parent), group.name, _PATIENCE_HERE):
        states = GroupStates.of(group)
        for name, job in group.jobs.items():
            if why := _why_left(states, job, started):
                left[name] = why
            else:
                started.add(name)
        _end_waiting(states, started)
        for job in (job for name, job in group.jobs.items() if name in started):
            run = job.directory
            if run is None:
                steps.append(_first_time(group, job, environ))
                continue
            resubmit(run, after=_after(group, job, run), environ=environ)
            group.mark_sent(job)
            steps.append(Step(job.job, run))
    return Again(steps, left)


def _end_waiting(states: GroupStates, names: set[str]) -> None:
    """End the jobs that wait for jobs that failed, all at once, so that none begins when another ends."""
    waiting = {name for name in names if (status := states.statuses[name]) and not status.over}
    runs = [run for name in waiting if (run := states.group.jobs[name].directory)]
    if problems := [request.problem for request in end(runs) if request.problem]:
        raise CastoffError("\n".join(problems))


def _why_left(states: GroupStates, job: GroupJob, started: set[str]) -> str:
    """Why a job is left as it is; empty if it is to be started. `started`: the jobs that were started."""
    status = states.statuses[job.job]
    if status is None:
        return "its directory is gone" if job.sent else ""
    if status.state == "ended" and status.ending == "done":
        return "done"
    again = not started.isdisjoint(job.waits_for)
    if not (status.over or status.never_begins or (status.state == "pending" and again)):
        return status.word
    return NOT_NEEDED if job.job in states.not_needed and not again else ""


def _after(group: Group, job: GroupJob, run: RunDirectory) -> dict[str, list[str]]:
    """The runs for which a job waits when it starts again, by condition: those of the group; others only if
    it never began, since it had waited for them.
    """
    record = run.submission()
    first = (record.earlier or [record])[0].after if record else {}
    ours = {other.run for name in job.waits_for if (other := group.jobs.get(name)) and other.directory}
    begun = has_begun(run)
    after = {
        condition: [path for path in paths if path in ours or not begun] for condition, paths in first.items()
    }
    return {condition: paths for condition, paths in after.items() if paths}


def _first_time(group: Group, job: GroupJob, environ: Mapping[str, str]) -> Step:
    """Submit a job that was never submitted, as the journal describes it."""
    if job.fields is None or not group.site:
        raise CastoffError(f"{job.job}: its fields are not known; submit its file")
    if group.command is not None:
        where = "from the machine that has its file and its code"
        raise CastoffError(f"{job.job} was never submitted: `{group.command}` submits it, {where}")
    if group.directory and working_directory() != group.directory:
        folder = visible_word(group.directory)
        raise CastoffError(
            f"{job.job} was never submitted: cd {folder}, from where the group was submitted, and resubmit it"
        )
    return _send(group, job, Place(JobSpec.of(job.fields), environ), site_named(group.site))
