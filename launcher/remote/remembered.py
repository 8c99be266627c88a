"""Records on the laptop about other machines, in the user's state folder `on/`.

pending/KEY.N.json   the id of a run whose submission has begun and has not been answered
groups/KEY.N.json    the id of a group of which some jobs may not have been submitted
sites/NAME.json      the profile that a machine's castoff has reported
code.json            the folders of code that the user has agreed to send, and their bytes
variables.json       the names of variables that were sent to a machine

An id is recorded before the job is sent. Until an answer arrives, the same submission gets the same id, by
which the machine recognizes a job that it already has. The file in `pending` is locked during the submission,
so that a simultaneous submission of the same job is another run. The same applies to groups.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import try_lock
from castoff.launcher.remote.entries import Entry
from castoff.launcher.runs.drafts import new_id
from castoff.launcher.runs.index import Index

_Fact = TypeVar("_Fact")


def _folder(environ: Mapping[str, str]) -> Path:
    """The folder of these records.

    Raises:
        CastoffError: the user has no home directory.
    """
    return Index.of(environ).path.parent / "on"


# Records that castoff can get again by asking once more


def site_fields(entry: Entry, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The profile that the machine's castoff reported last, as plain data."""
    record = _read(environ, f"sites/{entry.name}.json", dict[str, Any], {})
    return record.get("site") if record.get("of") == _identity(entry) else None


def remember_site(entry: Entry, fields: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Record the profile that the machine's castoff has reported."""
    _write(environ, f"sites/{entry.name}.json", {"of": _identity(entry), "site": fields})


def agreed_bytes(entry: Entry, folder: Path, environ: Mapping[str, str]) -> int | None:
    """The number of bytes of code in a folder that the user has agreed to send to this host; None: never
    asked.
    """
    return _read(environ, "code.json", dict[str, dict[str, int]], {}).get(entry.host, {}).get(str(folder))


def remember_agreement(entry: Entry, folder: Path, bytes_: int, environ: Mapping[str, str]) -> None:
    """Record that the user has agreed to send this much code."""
    agreed = _read(environ, "code.json", dict[str, dict[str, int]], {})
    agreed.setdefault(entry.host, {})[str(folder)] = bytes_
    _write(environ, "code.json", agreed)


def variables_given(entry: Entry, environ: Mapping[str, str]) -> set[str]:
    """The names of the variables that were sent to this host before.

    When a run is resubmitted, the machine names the variables that it needs, and could name any variable. So
    castoff asks the user before it sends a variable that no job from this laptop has sent to that host
    before.
    """
    return {*_read(environ, "variables.json", dict[str, list[str]], {}).get(entry.host, [])}


def remember_variables(entry: Entry, names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Record that these variables are sent to this host."""
    sent = _read(environ, "variables.json", dict[str, list[str]], {})
    before = {*sent.get(entry.host, [])}
    if not before.issuperset(names):
        sent[entry.host] = sorted(before.union(names))
        _write(environ, "variables.json", sent)


def _identity(entry: Entry) -> list[Any]:
    return [entry.host, entry.dir, entry.site]


def _read(environ: Mapping[str, str], name: str, kind: type[_Fact], nothing: _Fact) -> _Fact:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((_folder(environ) / name).read_bytes(), type=kind)
    return nothing


def _write(environ: Mapping[str, str], name: str, fact: object) -> None:
    path = _folder(environ) / name
    with contextlib.suppress(OSError):
        make_folders(path.parent)
        files.replace(path, msgspec.json.encode(fact).decode())


# Ids of runs: without them, a broken connection could lead to a second job


class _Record(msgspec.Struct):
    """The content of a file in `pending/`."""

    run: str
    machine: str
    host: str
    folder: str
    begun: float


@dataclass
class Pending:
    """The id of a run that is being submitted, and its file."""

    run: str
    is_old: bool
    """Whether an earlier command chose the id, and got no answer to its submission."""
    path: Path

    def answered(self) -> None:
        """Delete the id's file, so that the next submission of the same job is a new run."""
        with contextlib.suppress(OSError):
            self.path.unlink()


@contextlib.contextmanager
def pending(
    entry: Entry,
    submission: bytes,
    name: str,
    environ: Mapping[str, str],
    *,
    kind: str = "pending",
    new: bool = False,
) -> Iterator[Pending]:
    """Choose the id for a submission; `submission` is the data that identifies it: job, script, code.

    `kind`: the folder of the record. `new`: choose a new id, even if an earlier command got no answer.

    Raises:
        CastoffError: the id cannot be recorded.
    """
    key = hashlib.sha256(f"{entry.host}\0{entry.dir}\0".encode() + submission).hexdigest()[:16]
    folder = _folder(environ) / kind
    try:
        make_folders(folder)
        path, descriptor = _lock_free_file(folder, key)
        try:
            chosen = _choose(path, descriptor, entry, name, new=new)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise CastoffError(
            f"{folder}: the run's id cannot be recorded there ({error.strerror}), and without it a "
            "broken connection could lead to a second job; nothing was submitted"
        ) from error
    try:
        yield chosen
    finally:
        os.close(descriptor)


def unanswered(entry: Entry, environ: Mapping[str, str]) -> list[Pending]:
    """Submissions to this machine that were not answered and are not being repeated, the oldest first."""
    submissions: list[tuple[float, Pending]] = []
    folder = _folder(environ) / "pending"
    for path in folder.glob("*.json") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            record = _decode(path.read_bytes())
            if record and (record.host, record.folder) == (entry.host, entry.dir) and not _is_locked(path):
                submissions.append((record.begun, Pending(record.run, True, path)))
    return [submission for _, submission in sorted(submissions, key=lambda pair: pair[0])]


def _lock_free_file(folder: Path, key: str) -> tuple[Path, int]:
    """Open and lock the first file of a submission that no other process has locked."""
    number = 0
    while True:
        path = folder / f"{key}.{number}.json"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(descriptor) and _is_file_at(path, descriptor):
                return path, descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        number += 1


def _choose(path: Path, descriptor: int, entry: Entry, name: str, *, new: bool) -> Pending:
    record = None if new else _decode(os.pread(descriptor, 1 << 16, 0))
    if record is not None:
        return Pending(record.run, True, path)
    run = new_id(name)
    text = msgspec.json.encode(_Record(run, entry.name, entry.host, entry.dir, time.time()))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
    os.fsync(descriptor)
    return Pending(run, False, path)


def _decode(text: bytes) -> _Record | None:
    try:
        return msgspec.json.decode(text, type=_Record)
    except msgspec.MsgspecError:  # new or incomplete; nothing is sent before the record is complete
        return None


def _is_file_at(path: Path, descriptor: int) -> bool:
    """Whether the path still names the opened file: another process may have removed it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)
