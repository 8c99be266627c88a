"""`castoff on serve`: do what a laptop's messages ask for: store code, submit a job or a group once, list a
run's variables, send its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from castoff.launcher import clock
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import made, name_of
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.process.locks import is_locked
from castoff.launcher.remote import messages
from castoff.launcher.remote.called import check_own_folder
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.messages import (
    PROTOCOL,
    Code,
    Failed,
    Grouped,
    Hello,
    Lacking,
    Message,
    Names,
    NamesOf,
    Order,
    OrderedGroup,
    OrderedJob,
    Send,
    Stored,
    Submitted,
    Unread,
    Wanted,
)
from castoff.launcher.remote.results import Sender
from castoff.launcher.runs import provenance
from castoff.launcher.runs.directory import draft_of, is_run_directory
from castoff.launcher.runs.drafts import RunExists, is_id
from castoff.launcher.runs.groups import is_group_id, name_of_group
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import decode, write
from castoff.launcher.runs.run import LOCK, RUNS_FOLDER, RunDirectory
from castoff.launcher.schedulers.choice import check_profile, choose_site, not_described, profile
from castoff.launcher.submission.caller import Caller, Place
from castoff.launcher.submission.group import Step, submit_group
from castoff.launcher.submission.submit import dry_run, submit

_PATIENCE = 120.0
"""Seconds to wait for the submission of an earlier command whose connection broke."""


class StillUnderWay(CastoffError):
    """An earlier command has begun to submit the run, and still does."""


class Unfinished(CastoffError):
    """The group exists, so the laptop must ask for it by the same id again."""

    def __init__(self, error: CastoffError | OSError):
        self.exit_code = error.exit_code if isinstance(error, CastoffError) else 1
        super().__init__(str(error))


def serve(source: BinaryIO, sink: BinaryIO, rewrite: Callable[[str], str], site: str | None = None) -> int:
    """Greet, and answer messages until the laptop closes the stream; returns the exit code.

    `rewrite` changes commands in errors to what the caller types; `site` names the profile that the caller
    wants to plan with, or None for the one that this castoff chooses.
    """
    try:
        check_own_folder()
    except CastoffError as error:
        messages.write(sink, _failed(error, rewrite))
        return 1
    messages.write(sink, _hello(rewrite, site))
    try:
        with ExitStack() as held:
            answers = _Answers(source, sink, Path.cwd(), held)
            while (message := messages.read(source)) is not None:
                try:
                    answer = answers.answer(message)
                except CastoffError as error:
                    answer = _failed(error, rewrite)
                except OSError as error:
                    path = error.filename or answers.entry_folder
                    answer = Failed(f"{path}: {error.strerror or error}", 1)
                messages.write(sink, answer)
    except messages.ConnectionLost as error:  # also for a message that only newer versions know
        with contextlib.suppress(OSError):
            messages.write(sink, Failed(f"castoff there: {error}", 1, is_final=False))
        return 1
    return 0


def _failed(error: CastoffError, rewrite: Callable[[str], str]) -> Failed:
    text = rewrite(str(error)).encode(errors="replace").decode()  # a file's name may not be UTF-8
    return Failed(text, error.exit_code, is_final=not isinstance(error, StillUnderWay | Unfinished))


def _hello(rewrite: Callable[[str], str], wanted: str | None) -> Hello:
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    try:
        installed = version("castoff")
    except PackageNotFoundError:
        installed = "0"
    hello = Hello(PROTOCOL, installed, python_version(), str(Path.cwd()))
    try:
        site, why = choose_site() if wanted is None else (profile(wanted, Search.here()), "")
        hello.site, hello.site_name, hello.site_why = plain(site), site.name, why
        note = None if wanted else not_described(site)
        hello.site_note = note and rewrite(note)
    except CastoffError as error:
        hello.site_why = rewrite(str(error))
    return hello


def plain(site: Site) -> dict[str, Any]:
    """A profile as plain data, from which `Site(**data)` makes the same profile."""
    data: dict[str, Any] = msgspec.to_builtins(site)
    return data


class _Answers:
    """Answers the messages of one session, and remembers the codes that it received."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, entry_folder: Path, held: ExitStack):
        self.entry_folder = entry_folder
        self._source = source
        self._sink = sink
        self._held = held
        self._codes: list[tuple[Code, Path]] = []
        self._results = Sender()

    def answer(self, message: Message) -> Message:
        if isinstance(message, Code):
            return self._store(message)
        if isinstance(message, Order) and message.group is not None:
            return self._submit_group(message, message.group)
        if isinstance(message, Order):
            submitted = self._submit(message)
            existing = [run for run in message.earlier if self._is_run(run)]
            submitted.earlier = {run: RunDirectory(self._runs(None) / run).job for run in existing}
            return submitted
        if isinstance(message, NamesOf):
            runs = Index.of(os.environ).find_all([message.run])
            return Names(list(dict.fromkeys(name for run in runs for name in run.facts().env_from)))
        if isinstance(message, Wanted):
            return self._several(
                self._results.find(message.run, message.selectors, message.patterns, os.environ)
            )
        if isinstance(message, Send):
            return self._several(self._results.send(message.items))
        raise CastoffError(f"castoff: {type(message).__name__} is not a request")

    def _several(self, answers: Iterator[Message]) -> Message:
        """Send all answers but the last, and return this."""
        answer: Message = Unread("nothing was asked for")
        for number, following in enumerate(answers):
            if number:
                messages.write(self._sink, answer)
            answer = following
        return answer

    def _store(self, code: Code) -> Stored:
        store = Store(self.entry_folder, code, self._held)
        if not store.is_complete:
            lacking = store.lacking()
            messages.write(self._sink, Lacking(lacking))
            self._receive(store, code, lacking)
            store.finish()
        self._codes.append((code, store.folder))
        return Stored(str(store.folder), store.note)

    def _receive(self, store: Store, code: Code, lacking: list[int]) -> None:
        problem: Exception | None = None
        for number in lacking:
            content = messages.read_content(self._source, code.files[number].size)
            try:
                if problem is None:
                    store.take(number, content)
            except (OSError, CastoffError) as error:
                problem = error
            for _ in content:  # skip the rest of the file, which would otherwise be read as a message
                pass
        if problem is not None:
            raise problem

    def _submit(self, order: Order) -> Submitted:
        if len(order.jobs) != 1 or not is_id(order.run):
            raise CastoffError("castoff: not one job arrived, or with an invalid run id")
        (job,) = order.jobs
        path = self._runs(order.runs_dir) / order.run
        _await_other_submission(path)
        if is_run_directory(path):
            return _result(RunDirectory(path), was_there=True)
        site = _site(order)
        with self._placed(job, JobSpec.of(json.loads(job.fields))) as placed:
            note = _difference(placed.spec, site, job.script)
            try:
                run = submit(
                    placed.spec,
                    site,
                    runs_dir=path.parent,
                    environ=placed.environ,
                    prepare=placed.prepare,
                    run_id=order.run,
                    is_code=placed.is_code,
                )
            except RunExists:
                _await_other_submission(path)
                return _result(RunDirectory(path), was_there=True)
        result = _result(run, was_there=False)
        result.note = note
        return result

    def _submit_group(self, order: Order, about: OrderedGroup) -> Grouped:
        if not is_group_id(order.run) or name_of_group(order.run) != about.name:
            raise CastoffError("castoff: a group arrived with an invalid id")
        site, specs = _site(order), list[JobSpec]()
        for job in order.jobs:
            fields = json.loads(job.fields)
            specs.append(JobSpec.of(fields, origin=str(fields.get("name"))))
        group_jobs = made(about.name, specs, Path(about.file))
        jobs = {name_of(spec): (job, spec) for spec, job in zip(specs, order.jobs, strict=True)}

        def place(spec: JobSpec) -> AbstractContextManager[Place]:
            return self._placed(jobs[name_of(spec)][0], spec)

        submitted: dict[str, Submitted] = {}

        def answered(step: Step) -> None:
            answer = submitted[step.job] = _result(step.run, was_there=step.was_there)
            if not step.was_there:
                job, spec = jobs[step.job]
                with place(spec) as placed:
                    answer.note = _difference(placed.spec, site, job.script)

        try:
            group = submit_group(
                group_jobs,
                site,
                runs_dir=self._runs(order.runs_dir),
                selection=tuple(about.selection),
                on_step=answered,
                caller=Caller(order.run, about.command, place, _PATIENCE),
            )
        except (CastoffError, OSError) as error:
            begun = Index.of(os.environ).groups.read(order.run)
            if begun is None or begun.closed:
                raise
            raise Unfinished(error) from error
        return Grouped(group.id, submitted)

    @contextlib.contextmanager
    def _placed(self, job: OrderedJob, spec: JobSpec) -> Iterator[Place]:
        """Change to the folder of a job's code for a while."""
        if not 0 <= job.code < len(self._codes):
            raise CastoffError("castoff: a job arrived without its code")
        code, folder = self._codes[job.code]
        if job.templates is not None:
            spec = spec.changed(templates=str(folder / os.fsdecode(job.templates)))
        variables = {name: os.fsdecode(value) for name, value in job.variables.items()}
        os.chdir(folder / os.fsdecode(code.folder))
        try:
            environ = {**os.environ, **variables, "PWD": str(Path.cwd())}
            yield Place(spec, environ, lambda draft: _describe_code(draft, code), is_code=True)
        finally:
            os.chdir(self.entry_folder)

    def _runs(self, runs_dir: str | None) -> Path:
        folder = runs_dir or os.environ.get("CASTOFF_RUNS_DIR") or RUNS_FOLDER
        return (self.entry_folder / folder).resolve()

    def _is_run(self, run: str) -> bool:
        return is_id(run) and is_run_directory(self._runs(None) / run)


def _await_other_submission(path: Path) -> None:
    """Wait until a submission of this run by an earlier command has ended.

    Raises:
        StillUnderWay: the submission has not ended within the time limit.
    """
    if not clock.until(lambda: not _is_being_submitted(path), 0.1, _PATIENCE):
        raise StillUnderWay(
            f"{path.name}: an earlier command is still submitting it; call the same command again"
        )


def _is_being_submitted(path: Path) -> bool:
    draft = draft_of(path)
    if draft.is_dir() and is_locked(draft / LOCK):
        return True
    if not is_run_directory(path) or not is_locked(path / LOCK):
        return False
    record = RunDirectory(path).submission()
    return record is not None and record.job is None and record.error is None


def _site(order: Order) -> Site:
    site = Site(**json.loads(order.site))
    check_profile(site)
    return site


def _difference(spec: JobSpec, site: Site, digest: str) -> str | None:
    """Return a note if this castoff and the laptop's render different scripts for the job.

    Raises:
        InvalidInput: this castoff rejects the job for this site.
    """
    script = dry_run(spec, site).script
    if hashlib.sha256(script.encode(errors="surrogateescape")).hexdigest() == digest:
        return None
    return "the script differs from that of `castoff render` here, as the two versions differ"


def _describe_code(draft: Path, sent: Code) -> None:
    """Replace the run's record of its code by the laptop's, since the code's folder here is not a git
    repository.
    """
    code = decode(sent.about, provenance.Code) or provenance.Code()
    taken = provenance.read(RunDirectory(draft))
    code.snapshot = taken.snapshot if taken else None
    write(draft / "code.json", code)
    (draft / "code.diff").unlink(missing_ok=True)
    if sent.diff is not None:
        files.replace(draft / "code.diff", sent.diff.decode(errors="surrogateescape"))


def _result(run: RunDirectory, *, was_there: bool) -> Submitted:
    record = run.submission()
    code = provenance.read(run)
    if was_there and record is not None and record.job is None:
        why = f": {record.error}" if record.error else ""
        raise CastoffError(
            f"{run.id}: an earlier command made its directory, but its job's id is not known{why}\n"
            f"`castoff status {run.id}` asks the scheduler; if it reports that the run never began, "
            f"`castoff resubmit {run.id}` submits it"
        )
    return Submitted(
        run=run.id,
        job=record.job if record else None,
        directory=str(run.path),
        scheduler=record.scheduler if record else "",
        code=provenance.words(run),
        snapshot=code.snapshot.words() if code and code.snapshot else None,
        node_hours=record.node_hours if record else None,
        was_there=was_there,
    )
