"""`castoff on serve`: do what a laptop's messages ask for: store code, submit a job once, list a run's
variables.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from castoff.launcher import clock
from castoff.launcher.config.job import JobSpec
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
    Hello,
    Lacking,
    Message,
    Names,
    NamesOf,
    Order,
    Stored,
    Submitted,
)
from castoff.launcher.runs import provenance
from castoff.launcher.runs.directory import draft_of, is_run_directory
from castoff.launcher.runs.drafts import RunExists
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import decode, write
from castoff.launcher.runs.run import LOCK, RUNS_FOLDER, RunDirectory
from castoff.launcher.schedulers.choice import check_profile, choose_site, not_described, profile
from castoff.launcher.submission.submit import dry_run, submit

_RUN_ID = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")

_PATIENCE = 120.0
"""Seconds to wait for the submission of an earlier command whose connection broke."""


class StillUnderWay(CastoffError):
    """An earlier command has begun to submit the run, and still does."""


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
    return Failed(text, error.exit_code, is_final=not isinstance(error, StillUnderWay))


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
    """Answers the messages of one session, and remembers the code that it received."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, entry_folder: Path, held: ExitStack):
        self.entry_folder = entry_folder
        self._source = source
        self._sink = sink
        self._held = held
        self._code: Path | None = None

    def answer(self, message: Message) -> Message:
        if isinstance(message, Code):
            return self._store(message)
        if isinstance(message, Order):
            submitted = self._submit(message)
            existing = [run for run in message.earlier if self._is_run(run)]
            submitted.earlier = {run: RunDirectory(self._runs(None) / run).job for run in existing}
            return submitted
        if isinstance(message, NamesOf):
            return Names(list(Index.of(os.environ).find(message.run).facts().env_from))
        raise CastoffError(f"castoff: {type(message).__name__} is not a request")

    def _store(self, code: Code) -> Stored:
        store = Store(self.entry_folder, code, self._held)
        if not store.is_complete:
            lacking = store.lacking()
            messages.write(self._sink, Lacking(lacking))
            self._receive(store, code, lacking)
            store.finish()
        self._code = store.folder
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
        if self._code is None or _RUN_ID.fullmatch(order.run) is None:
            raise CastoffError("castoff: a job arrived without its code, or with an invalid run id")
        path = self._runs(order.runs_dir) / order.run
        _await_other_submission(path)
        if is_run_directory(path):
            return _result(RunDirectory(path), was_there=True)
        spec, site = JobSpec.of(json.loads(order.job)), Site(**json.loads(order.site))
        if order.templates is not None:
            spec = spec.changed(templates=str(self._code / os.fsdecode(order.templates)))
        check_profile(site)
        variables = {name: os.fsdecode(value) for name, value in order.variables.items()}
        os.chdir(self._code / os.fsdecode(order.folder))
        environ = {**os.environ, **variables, "PWD": str(Path.cwd())}
        note = _difference(spec, site, order.script)
        try:
            run = submit(
                spec,
                site,
                runs_dir=path.parent,
                environ=environ,
                prepare=lambda draft: _describe_code(draft, order),
                run_id=order.run,
                is_code=True,
            )
        except RunExists:
            _await_other_submission(path)
            return _result(RunDirectory(path), was_there=True)
        finally:
            os.chdir(self.entry_folder)
        result = _result(run, was_there=False)
        result.note = note
        return result

    def _runs(self, runs_dir: str | None) -> Path:
        folder = runs_dir or os.environ.get("CASTOFF_RUNS_DIR") or RUNS_FOLDER
        return (self.entry_folder / folder).resolve()

    def _is_run(self, run: str) -> bool:
        return _RUN_ID.fullmatch(run) is not None and is_run_directory(self._runs(None) / run)


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


def _difference(spec: JobSpec, site: Site, digest: str) -> str | None:
    """Return a note if this castoff and the laptop's render different scripts for the job.

    Raises:
        InvalidInput: this castoff rejects the job for this site.
    """
    script = dry_run(spec, site).script
    if hashlib.sha256(script.encode(errors="surrogateescape")).hexdigest() == digest:
        return None
    return "the script differs from that of `castoff render` here, as the two versions differ"


def _describe_code(draft: Path, order: Order) -> None:
    """Replace the run's record of its code by the laptop's, since the code's folder here is not a git
    repository.
    """
    code = decode(order.about_code, provenance.Code) or provenance.Code()
    taken = provenance.read(RunDirectory(draft))
    code.snapshot = taken.snapshot if taken else None
    write(draft / "code.json", code)
    (draft / "code.diff").unlink(missing_ok=True)
    if order.diff is not None:
        files.replace(draft / "code.diff", order.diff.decode(errors="surrogateescape"))


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
