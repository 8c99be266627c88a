"""What the castoff on a machine does for one on a laptop: greet, take code, submit a job once.

`castoff on serve` calls it, from an ssh command of the user's, and ends with that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.process.locks import is_locked
from castoff.launcher.remote import frames
from castoff.launcher.remote.code_store import Store
from castoff.launcher.remote.frames import (
    PROTOCOL,
    Code,
    Failed,
    Hello,
    Known,
    Lacking,
    Message,
    Names,
    NamesOf,
    Order,
    Part,
    Remove,
    Removed,
    Stored,
    Submitted,
    Unneeded,
    WhatIsUnneeded,
    Which,
)
from castoff.launcher.runs import provenance
from castoff.launcher.runs.directory import draft_of, is_run_directory
from castoff.launcher.runs.drafts import RunExists
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import decode, write
from castoff.launcher.runs.run import LOCK, RUNS_FOLDER, RunDirectory
from castoff.launcher.schedulers.choice import check_profile, choose_site, not_described, profile
from castoff.launcher.submission.submit import dry_run, submit
from castoff.launcher.trust.decision import check

_RUN_ID = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*")

_PATIENCE = 120.0
"""Seconds for a submission that is under way to end: of a command before whose connection broke."""


class StillUnderWay(CastoffError):
    """A submission that was begun before has not ended."""


def serve(source: BinaryIO, sink: BinaryIO, rewrite: Callable[[str], str], site: str | None = None) -> int:
    """Answer messages until there are no more; `rewrite` puts commands in messages as the caller types them.

    `site`: the profile that the caller wants to plan with; None: the one that castoff chooses here.
    """
    try:
        check_own_folder()
    except CastoffError as error:
        frames.write(sink, Failed(rewrite(str(error)).encode(errors="replace").decode(), error.exit_code))
        return 1
    frames.write(sink, _hello(rewrite, site))
    try:
        with ExitStack() as held:
            _answer_all(source, sink, rewrite, _Side(source, Path.cwd(), held))
    except frames.Broken as error:  # the caller has gone, or its castoff is newer
        with contextlib.suppress(OSError):
            frames.write(sink, Failed(f"castoff there: {error}", 1, is_final=False))
        return 1
    return 0


def check_own_folder() -> None:
    """Make sure that nobody else can have put theirs in place of the entry's folder, which this runs in.

    Raises:
        CastoffError: somebody can whom the user has not trusted here.
    """
    check(Path.cwd(), otherwise="or use another folder there, with --dir of `castoff on add`")


def _answer_all(source: BinaryIO, sink: BinaryIO, rewrite: Callable[[str], str], side: _Side) -> None:
    while (message := frames.read(source)) is not None:
        try:
            answer = side.answer(message)
            if isinstance(answer, Lacking):
                frames.write(sink, answer)
                answer = side.store_parts(answer.numbers)
        except CastoffError as error:
            is_final = not isinstance(error, StillUnderWay)
            text = rewrite(str(error)).encode(errors="replace").decode()  # a name may not be UTF-8
            answer = Failed(text, error.exit_code, is_final)
        except OSError as error:
            answer = Failed(f"{error.filename or side.folder}: {error.strerror or error}", 1)
        frames.write(sink, answer)


def _hello(rewrite: Callable[[str], str], wanted: str | None) -> Hello:
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    try:
        own = version("castoff")
    except PackageNotFoundError:
        own = "0"
    hello = Hello(PROTOCOL, own, python_version(), str(Path.cwd()))
    try:
        site, why = choose_site() if wanted is None else (profile(wanted, Search.here()), "")
        hello.site, hello.site_name, hello.site_why = plain(site), site.name, why
        note = None if wanted else not_described(site)
        hello.site_note = note and rewrite(note)
    except CastoffError as error:
        hello.site_why = rewrite(str(error))
    return hello


def plain(site: Site) -> dict[str, Any]:
    """A profile as plain data, of which `Site(**data)` is the same again."""
    data: dict[str, Any] = msgspec.to_builtins(site)
    return data


class _Side:
    """What one session knows."""

    def __init__(self, source: BinaryIO, folder: Path, held: ExitStack):
        self.folder = folder
        self._held = held
        self._source = source
        self._store: Store | None = None
        self._code: Path | None = None

    def answer(self, message: Message) -> Message:
        if isinstance(message, Code):
            self._store = Store(self.folder, message, self._held)
            if self._store.is_complete:
                return self._stored(self._store.folder)
            return Lacking(self._store.lacking())
        if isinstance(message, Order):
            return self._submitted(message)
        if isinstance(message, NamesOf):
            spec = JobSpec.load(Index.of(os.environ).find(message.run).path / "job.yaml")
            return Names(list(spec.env_from))
        if isinstance(message, Which):
            return Known({run: _job_of(self._runs(None) / run) for run in message.runs if self._is_run(run)})
        if isinstance(message, (WhatIsUnneeded, Remove)):
            return self._cleaned(message)
        raise CastoffError(f"castoff: {type(message).__name__} is not something that can be asked")

    def _cleaned(self, message: WhatIsUnneeded | Remove) -> Message:
        from castoff.launcher.remote import unneeded  # late: it is rarely asked for

        if isinstance(message, WhatIsUnneeded):
            looked = unneeded.unneeded(self.folder, os.environ)
            return Unneeded({str(path): unneeded.size(path) for path in looked.unneeded}, looked.notes)
        removed = unneeded.remove(self.folder, [*map(Path, message.folders)], os.environ)
        return Removed([*map(str, removed)])

    def store_parts(self, numbers: list[int]) -> Stored:
        """Take these contents from the laptop."""
        store = self._store
        assert store is not None
        problem: Exception | None = None
        for number in numbers:
            parts = self._parts()
            try:
                if problem is None:
                    store.take(number, parts)
            except (OSError, CastoffError) as error:
                problem = error
            for _ in parts:  # what was not taken is not left to be read as something else
                pass
        if problem is not None:
            raise problem
        return self._stored(store.finish())

    def _stored(self, folder: Path) -> Stored:
        self._code = folder
        return Stored(str(folder), self._store.note if self._store else None)

    def _parts(self) -> Iterator[Part]:
        while True:
            message = frames.read(self._source)
            if not isinstance(message, Part):
                raise frames.Broken("the code did not arrive whole")
            yield message
            if message.is_last:
                return

    def _submitted(self, order: Order) -> Submitted:
        if self._code is None or _RUN_ID.fullmatch(order.run) is None:
            raise CastoffError("castoff: a job came without its code, or with an id that cannot be one")
        path = self._runs(order.runs_dir) / order.run
        _await_draft(path)
        if is_run_directory(path):
            return _result(RunDirectory(path), was_there=True)
        spec, site = self._job(order)
        check_profile(site)
        variables = {name: os.fsdecode(value) for name, value in order.variables.items()}
        os.chdir(self._code / os.fsdecode(order.folder))
        environ = {**os.environ, **variables, "PWD": str(Path.cwd())}
        note = _compared(spec, site, order.script)
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
            _await_draft(path)
            return _result(RunDirectory(path), was_there=True)
        finally:
            os.chdir(self.folder)
        result = _result(run, was_there=False)
        result.note = note
        return result

    def _runs(self, wanted: str | None) -> Path:
        folder = wanted or os.environ.get("CASTOFF_RUNS_DIR") or RUNS_FOLDER
        return (self.folder / folder).resolve()

    def _is_run(self, run: str) -> bool:
        return _RUN_ID.fullmatch(run) is not None and is_run_directory(self._runs(None) / run)

    def _job(self, order: Order) -> tuple[JobSpec, Site]:
        assert self._code is not None
        spec = JobSpec.of(json.loads(order.job))
        if order.templates is not None:
            spec = spec.changed(templates=str(self._code / os.fsdecode(order.templates)))
        return spec, Site(**json.loads(order.site))


def _job_of(path: Path) -> str | None:
    return RunDirectory(path).job


def _await_draft(path: Path) -> None:
    """Wait for a submission that is under way, which a command before may have begun.

    Raises:
        StillUnderWay: it takes long.
    """
    draft, give_up = draft_of(path), time.monotonic() + _PATIENCE
    while True:
        under_way = draft.is_dir() and is_locked(draft / LOCK)
        if not under_way and is_run_directory(path) and is_locked(path / LOCK):
            record = RunDirectory(path).submission()
            under_way = record is not None and record.job is None and record.error is None
        if not under_way:
            return
        if time.monotonic() > give_up:
            raise StillUnderWay(
                f"{path.name}: its submission is still under way; call the same command again"
            )
        time.sleep(0.1)


def _compared(spec: JobSpec, site: Site, digest: str) -> str | None:
    """What to say where the script is another than was rendered on the laptop.

    Raises:
        InvalidInput: the job cannot run there, by this castoff's rules.
    """
    script = dry_run(spec, site).script
    if hashlib.sha256(script.encode(errors="surrogateescape")).hexdigest() == digest:
        return None
    return "the script differs from what `castoff render` shows here, as the two castoffs differ"


def _describe_code(draft: Path, order: Order) -> None:
    """Record the code as the laptop knows it: in the folder there git knows nothing of it."""
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
    result = Submitted(
        run=run.id,
        job=record.job if record else None,
        directory=str(run.path),
        scheduler=record.scheduler if record else "",
        code=provenance.words(run),
        snapshot=code.snapshot.words() if code and code.snapshot else None,
        node_hours=record.node_hours if record else None,
        was_there=was_there,
    )
    if was_there and record is not None and record.job is None:
        why = f": {record.error}" if record.error else ""
        raise CastoffError(
            f"{run.id}: its directory was made by the command before, but no job of it is known{why}\n"
            f"`castoff status {run.id}` asks the scheduler; once that says that it never began, "
            f"`castoff resubmit {run.id}` submits it"
        )
    return result


def mark_used() -> None:
    """Note that this castoff is called for somebody elsewhere, if it was installed for that."""
    with contextlib.suppress(OSError):
        os.utime(Path(sys.prefix, "complete"))


def rewriting(machine: str, *, named: bool) -> Callable[[str], str]:
    """Puts castoff's commands in messages as the person on the laptop types them."""
    # `trust` without --on is always about the machine where it is typed.
    command = re.compile(r"(?<=`)castoff (?=[a-z])(?!on )" if named else "(?!)")
    trust = re.compile(r"(?<=: )castoff (?=trust )")
    shut = re.compile(r"(?<=\bor shut them out)(?=: )")

    def rewrite(text: str) -> str:
        typed = f"castoff --on {machine} "
        return shut.sub(f" on {machine}", trust.sub(typed, command.sub(typed, text)))

    return rewrite


def own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for messages alone: what else is printed goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    sys.stdout.flush()
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")
