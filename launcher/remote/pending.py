"""Ids of runs whose submission was begun and not answered: in the user's state folder, one file each.

The id is written down before the job is sent. As long as no answer was heard, the same submission gets the
same id, so that the other side can tell that it has it already. A file is locked while its submission is
under way, so that two that are called at the same time are two runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import try_lock
from castoff.launcher.remote.entries import Entry
from castoff.launcher.runs.drafts import new_id
from castoff.launcher.runs.index import Index
from castoff.launcher.trust.folders import make_folders


class _Kept(msgspec.Struct):
    """A file's content."""

    run: str
    machine: str
    host: str
    folder: str
    begun: float


@dataclass
class Pending:
    """An id, and whether it was chosen by a submission before that was not answered."""

    run: str
    is_old: bool
    path: Path

    def answered(self) -> None:
        """Forget it: the next submission of the same is a new run."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where castoff keeps what it knows of other machines.

    Raises:
        CastoffError: there is no home.
    """
    return Index.of(environ).path.parent / "on"


@contextlib.contextmanager
def pending(entry: Entry, submission: bytes, name: str, environ: Mapping[str, str]) -> Iterator[Pending]:
    """The id for a submission; `submission` is all that makes it the same: job, script, code.

    Raises:
        CastoffError: it cannot be written down.
    """
    key = hashlib.sha256(f"{entry.host}\0{entry.dir}\0".encode() + submission).hexdigest()[:16]
    folder = state_folder(environ) / "pending"
    try:
        make_folders(folder)
        path, descriptor = _opened(folder, key)
        try:
            found = _chosen(path, descriptor, entry, name)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise CastoffError(
            f"{folder}: the run's id cannot be written down there ({error.strerror}), and without it a "
            "broken connection could lead to a second job; nothing was submitted"
        ) from error
    try:
        yield found
    finally:
        os.close(descriptor)


def unanswered(entry: Entry, environ: Mapping[str, str]) -> list[Pending]:
    """Submissions to that machine that were begun, not answered, and not called again; the oldest first."""
    found: list[tuple[float, Pending]] = []
    folder = state_folder(environ) / "pending"
    for path in folder.glob("*.json") if folder.is_dir() else []:
        with contextlib.suppress(OSError):
            kept = _read(path.read_bytes())
            if kept and (kept.host, kept.folder) == (entry.host, entry.dir) and not _is_held(path):
                found.append((kept.begun, Pending(kept.run, True, path)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _opened(folder: Path, key: str) -> tuple[Path, int]:
    """The first file of a submission that no other process holds, locked."""
    number = 0
    while True:
        path = folder / f"{key}.{number}.json"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(descriptor) and _is(path, descriptor):
                return path, descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        number += 1


def _chosen(path: Path, descriptor: int, entry: Entry, name: str) -> Pending:
    kept = _read(os.pread(descriptor, 1 << 16, 0))
    if kept is not None:
        return Pending(kept.run, True, path)
    run = new_id(name)
    text = msgspec.json.encode(_Kept(run, entry.name, entry.host, entry.dir, time.time()))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
    os.fsync(descriptor)
    return Pending(run, False, path)


def _read(text: bytes) -> _Kept | None:
    try:
        return msgspec.json.decode(text, type=_Kept)
    except msgspec.MsgspecError:  # just made, or never written whole: nothing was sent then
        return None


def _is(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to the file that was opened."""
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
