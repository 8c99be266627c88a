"""What this laptop remembers of other machines, in the user's state folder `on/`.

pending/KEY.N.json   the id of a run whose submission was begun and not answered
sites/NAME.json      the profile that the castoff of an entry has reported
code.json            the folders of code that the user has agreed to send, and their bytes
variables.json       the names of variables that a machine was given

An id is written down before the job is sent. As long as no answer has arrived, the same submission gets the
same id, so that the other side can tell that it has the job already. A file of `pending` is locked while its
submission is under way, so that two that are called at the same time are two runs.
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
    """Where it is remembered.

    Raises:
        CastoffError: there is no home.
    """
    return Index.of(environ).path.parent / "on"


# Facts, of which the loss costs one more question


def site_fields(entry: Entry, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The fields of the profile that the castoff of this entry has last reported."""
    kept = _read(environ, f"sites/{entry.name}.json", dict[str, Any], {})
    return kept.get("site") if kept.get("of") == _identity(entry) else None


def remember_site(entry: Entry, fields: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Remember the profile that the castoff of this entry has reported."""
    _write(environ, f"sites/{entry.name}.json", {"of": _identity(entry), "site": fields})


def agreed_bytes(entry: Entry, folder: Path, environ: Mapping[str, str]) -> int | None:
    """How many bytes of code in a folder the user has agreed to send to this host; None: was never asked."""
    return _read(environ, "code.json", dict[str, dict[str, int]], {}).get(entry.host, {}).get(str(folder))


def remember_agreement(entry: Entry, folder: Path, bytes_: int, environ: Mapping[str, str]) -> None:
    """Remember that the user has agreed to send this much code."""
    agreed = _read(environ, "code.json", dict[str, dict[str, int]], {})
    agreed.setdefault(entry.host, {})[str(folder)] = bytes_
    _write(environ, "code.json", agreed)


def variables_given(entry: Entry, environ: Mapping[str, str]) -> set[str]:
    """The names of the variables that this host was given.

    When a run is resubmitted, the remote machine names the variables that it needs, and could name any: so
    castoff asks the user before it sends one that no job from this host has sent there before.
    """
    return {*_read(environ, "variables.json", dict[str, list[str]], {}).get(entry.host, [])}


def remember_variables(entry: Entry, names: Iterable[str], environ: Mapping[str, str]) -> None:
    """Remember that this host is given these variables."""
    given = _read(environ, "variables.json", dict[str, list[str]], {})
    known = {*given.get(entry.host, [])}
    if not known.issuperset(names):
        given[entry.host] = sorted(known.union(names))
        _write(environ, "variables.json", given)


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


# Ids of runs, without which a broken connection could lead to a second job


class _Kept(msgspec.Struct):
    """The content of a file of `pending`."""

    run: str
    machine: str
    host: str
    folder: str
    begun: float


@dataclass
class Pending:
    """The id of a run that is being submitted."""

    run: str
    is_old: bool
    """Whether an earlier submission has chosen the id and was not answered."""
    path: Path

    def answered(self) -> None:
        """Forget the id: the next submission of the same job is a new run."""
        with contextlib.suppress(OSError):
            self.path.unlink()


@contextlib.contextmanager
def pending(entry: Entry, submission: bytes, name: str, environ: Mapping[str, str]) -> Iterator[Pending]:
    """The id for a submission; `submission` is all that makes it the same: job, script, code.

    Raises:
        CastoffError: the id cannot be written down.
    """
    key = hashlib.sha256(f"{entry.host}\0{entry.dir}\0".encode() + submission).hexdigest()[:16]
    folder = _folder(environ) / "pending"
    try:
        make_folders(folder)
        path, descriptor = _lock_free_file(folder, key)
        try:
            chosen = _choose(path, descriptor, entry, name)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise CastoffError(
            f"{folder}: the run's id cannot be written down there ({error.strerror}), and without it a "
            "broken connection could lead to a second job; nothing was submitted"
        ) from error
    try:
        yield chosen
    finally:
        os.close(descriptor)


def unanswered(entry: Entry, environ: Mapping[str, str]) -> list[Pending]:
    """Submissions to that machine that were begun, not answered, and not called again; the oldest first."""
    found: list[tuple[float, Pending]] = []
    folder = _folder(environ) / "pending"
    for path in folder.glob("*.json") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            kept = _decode(path.read_bytes())
            if kept and (kept.host, kept.folder) == (entry.host, entry.dir) and not _is_held(path):
                found.append((kept.begun, Pending(kept.run, True, path)))
    return [submission for _, submission in sorted(found, key=lambda pair: pair[0])]


def _lock_free_file(folder: Path, key: str) -> tuple[Path, int]:
    """Open and lock the first file of a submission that no other process holds."""
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


def _choose(path: Path, descriptor: int, entry: Entry, name: str) -> Pending:
    kept = _decode(os.pread(descriptor, 1 << 16, 0))
    if kept is not None:
        return Pending(kept.run, True, path)
    run = new_id(name)
    text = msgspec.json.encode(_Kept(run, entry.name, entry.host, entry.dir, time.time()))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
    os.fsync(descriptor)
    return Pending(run, False, path)


def _decode(text: bytes) -> _Kept | None:
    try:
        return msgspec.json.decode(text, type=_Kept)
    except msgspec.MsgspecError:  # just made, or never written whole: nothing was sent then
        return None


def _is_file_at(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to the file that was opened: another process may have removed it."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_held(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)
