"""The machine's store of submitted code: a folder for each state of the code, which appears only when
complete.

FOLDER/code/PROJECT/NAME/           the files, unchanged since they were sent
FOLDER/code/PROJECT/.NAME.files     the list of these files
FOLDER/code/PROJECT/.NAME.partial/  the files that have arrived so far, each complete
FOLDER/code/PROJECT/.WORD.draft     a file that is arriving
FOLDER/code/PROJECT/.lock           locked during a submission, so that no code is removed meanwhile

Why not rsync: it fails if the login shell prints anything, must be installed on both machines, sends renamed
files again, and would still need the list, the lock and the renaming.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.process import files
from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import NoLocks, take, try_lock
from castoff.launcher.remote.messages import CHUNK, Code, File
from castoff.launcher.runs.removal import empty

CODE = "code"
"""The folder of all code, within the entry's folder."""

_LIST = ".files"

_EARLIER_FOLDERS = 20
"""Number of the project's newest folders from which unchanged files are copied instead of sent."""

_ABANDONED = 14 * 24 * 3600.0
"""Seconds after which an interrupted transfer is removed."""

_LOCK_PATIENCE = 60.0
"""Seconds to wait for a removal of code, which holds the lock only while it renames folders."""


class Store:
    """Receives the code of one submission, and puts it into its folder."""

    def __init__(self, entry_folder: Path, code: Code, held: ExitStack):
        """Choose the folder for the code. Until `held` is closed, no code of the project is removed.

        Raises:
            CastoffError: the list names a file outside the code's folder, or a name is invalid.
        """
        _check_names(code)
        self._code = code
        self._project = entry_folder / CODE / code.project
        self.note: str | None = None
        """A note for the user if the folder with the code's name was already taken."""
        make_folders(self._project, 0o755)
        held.enter_context(in_use(self._project))
        self.folder = self._choose_folder()
        """The folder of the code, which exists once the code is complete."""
        self._partial = self._project / f".{self.folder.name}.partial"
        self._whole: set[bytes] = set()
        """Names of the files that have arrived completely."""

    @property
    def is_complete(self) -> bool:
        """Whether the folder is complete; another transfer of the same code may have completed it."""
        return self.folder.is_dir()

    def lacking(self) -> list[int]:
        """The numbers of the files that have to be sent, after unchanged files were copied from earlier
        folders.

        Raises:
            OSError: the files cannot be written.
        """
        with self._unless_complete():
            return self._lacking()
        return []

    def _lacking(self) -> list[int]:
        self._partial.mkdir(mode=0o700, exist_ok=True)
        os.utime(self._partial)  # this transfer is in progress, not abandoned
        self._remove_abandoned_transfers()
        self._remove_unlisted_files()
        earlier = self._earlier_contents()
        lacking: dict[bytes, int] = {}
        for number, file in enumerate(self._code.files):
            if file.target is not None or file.digest in lacking or self._is_in_place(file):
                continue
            if file.size == 0:
                self._write(file, iter([b""]))
            elif not any(self._copy(source, file) for source in earlier.get(file.digest, [])):
                lacking[file.digest] = number
        return list(lacking.values())

    def take(self, number: int, content: Iterator[bytes]) -> None:
        """Receive a file, and rename it to its final name once it is complete.

        Raises:
            CastoffError: the content does not match the list.
            OSError: the file cannot be written.
        """
        file = self._code.files[number]
        arrived = True
        with self._unless_complete():
            arrived = self._write(file, content)
        if not arrived:
            raise CastoffError(
                f"{printable(os.fsdecode(file.name))}: arrived damaged; call the command again"
            )

    def finish(self) -> Path:
        """Rename the partial folder to its final name, after all files have arrived.

        Raises:
            CastoffError: a file is missing.
            OSError: the folder cannot be written.
        """
        with self._unless_complete():
            if not self.is_complete:
                self._finish()
        if self._partial.is_dir():  # another transfer of the same code finished first
            empty(self._partial)
        return self.folder

    def _finish(self) -> None:
        by_digest = {file.digest: self._place(file) for file in self._code.files if file.name in self._whole}
        placed = []
        for file in self._code.files:
            if file.target is not None:
                continue
            source = by_digest.get(file.digest)
            if source is None or not (file.name in self._whole or self._copy(source, file)):
                raise CastoffError(
                    f"{printable(os.fsdecode(file.name))}: did not arrive; call the command again"
                )
            self._place(file).chmod(_mode(file))
            placed.append(Placed(file, self._place(file).lstat().st_mtime_ns))
        for file in self._code.files:
            if file.target is not None:
                self._link(file, file.target)
                placed.append(Placed(file, 0))
        files.replace(list_path(self.folder), msgspec.msgpack.encode(placed))
        self._partial.rename(self.folder)

    @contextlib.contextmanager
    def _unless_complete(self) -> Iterator[None]:
        """Ignore an OSError if another transfer has meanwhile completed the folder of the same code."""
        try:
            yield
        except OSError:
            if not self.is_complete:
                raise

    # Folders

    def _choose_folder(self) -> Path:
        """The first of the folders NAME, NAME.1, … that does not exist yet or holds exactly these files."""
        wanted = {file.name: file for file in self._code.files}
        number = 1
        while True:
            folder = self._project / (self._code.name if number == 1 else f"{self._code.name}.{number}")
            if not os.path.lexists(folder):
                return folder
            listing = listing_of(folder)
            changed = listing.first_changed() if listing else "its list of files"
            stored = {placed.file.name: placed.file for placed in listing.files} if listing else {}
            if listing and changed is None and stored == wanted:
                return folder
            number += 1
            if changed is not None:
                self.note = (
                    f"{printable(str(folder))}: {printable(changed)} was changed "
                    "on the machine since it was sent, so "
                    f"the code is in another folder, {self._code.name}.{number}; the changed folder stays"
                )

    def _earlier_contents(self) -> dict[bytes, list[Path]]:
        """The files of the project's earlier folders, by digest."""
        paths: dict[bytes, list[Path]] = {}
        for folder in listed_folders(self._project)[:_EARLIER_FOLDERS]:
            listing = listing_of(folder)
            for file in [placed.file for placed in listing.files] if listing else []:
                if file.target is None:
                    paths.setdefault(file.digest, []).append(folder / os.fsdecode(file.name))
        return paths

    def _remove_abandoned_transfers(self) -> None:
        """Remove the remains of transfers that broke long ago; more recent ones may still be running."""
        for path in self._project.glob(".*"):
            with contextlib.suppress(OSError, CastoffError):
                is_left = path.name.endswith((".partial", ".draft"))
                if is_left and time.time() - path.lstat().st_mtime > _ABANDONED:
                    path.unlink() if path.name.endswith(".draft") else empty(path)

    def _remove_unlisted_files(self) -> None:
        """Remove files from the partial folder that belong to other code with the same name."""
        listed = {file.name for file in self._code.files}
        for folder, inner, names in os.walk(self._partial):
            for path in (Path(folder, name) for name in (*inner, *names)):
                is_folder = path.is_dir() and not path.is_symlink()
                if not is_folder and os.fsencode(path.relative_to(self._partial)) not in listed:
                    path.unlink()

    # Files

    def _place(self, file: File) -> Path:
        return self._partial / os.fsdecode(file.name)

    def _is_in_place(self, file: File) -> bool:
        """Whether the file is complete in the partial folder, from an earlier attempt of this transfer."""
        try:
            about = self._place(file).lstat()
        except OSError:
            return False
        is_alike = stat.S_ISREG(about.st_mode) and about.st_size == file.size
        if is_alike and _digest_of(self._place(file)) == file.digest:
            self._whole.add(file.name)
        return file.name in self._whole

    def _copy(self, source: Path, file: File) -> bool:
        """Copy a file from an earlier folder; returns False if a job has changed it since."""
        # Not a hard link, through which one job could change the code of another job.
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as opened:
            return self._write(file, iter(lambda: opened.read(CHUNK), b""))

    def _write(self, file: File, content: Iterator[bytes]) -> bool:
        """Write a file. If the content does not match the file's digest, remove it again and return False."""
        path = self._place(file)
        make_folders(path.parent)
        draft = self._project / f".{os.urandom(8).hex()}.draft"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            digest, size = hashlib.sha256(), 0
            with os.fdopen(descriptor, "wb") as written:
                for part in content:
                    size += len(part)
                    if size > file.size:
                        return False
                    digest.update(part)
                    written.write(part)
            if size != file.size or digest.digest() != file.digest:
                return False
            draft.replace(path)
            self._whole.add(file.name)
            return True
        finally:
            with contextlib.suppress(OSError):  # already renamed, or never created
                draft.unlink()

    def _link(self, file: File, target: bytes) -> None:
        path = self._place(file)
        make_folders(path.parent)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(os.fsdecode(target))


def _mode(file: File) -> int:
    """The file's permissions on the machine: the owner may read and write, and others may not write."""
    return (file.mode & 0o755) | 0o600


def _check_names(code: Code) -> None:
    """Check that every file is inside the folder, and that no file is also the folder of another.

    Raises:
        CastoffError: a name is invalid, listed twice, or listed as both a file and a folder.
    """
    for word in (code.project, code.name):
        if not word or "/" in word or word.startswith(".") or "\0" in word:
            raise CastoffError(f"code: {printable(word)!r} is not a name for a folder")
    names = {file.name for file in code.files}
    if len(names) < len(code.files):
        raise CastoffError("code: a file is listed twice")
    folders: set[bytes] = set()
    for name in names:
        parts = name.split(b"/")
        if not all(part not in (b"", b".", b"..") and b"\0" not in part for part in parts):
            raise CastoffError(
                f"code: {printable(os.fsdecode(name))!r} is not a file within the code's folder"
            )
        folders.update(b"/".join(parts[:count]) for count in range(1, len(parts)))
    if both := folders & names:
        raise CastoffError(
            f"code: {printable(os.fsdecode(both.pop()))!r} is listed as a file and as a folder"
        )


# The list of a folder's files


class Placed(msgspec.Struct, array_like=True):
    """A file of the code, and its mtime (ns) when it was stored, by which changes are detected."""

    file: File
    mtime: int


class Listing(NamedTuple):
    """A folder of code, with the list of its files as they were sent."""

    folder: Path
    files: list[Placed]

    def first_changed(self) -> str | None:
        """The name of the first file that differs from what was sent; None if none does."""
        for placed in self.files:
            name = os.fsdecode(placed.file.name)
            if not _is_unchanged(self.folder / name, placed):
                return name
        return None


def listing_of(folder: Path) -> Listing | None:
    """The list of a folder's files; None if there is no list."""
    try:
        text = list_path(folder).read_bytes()
        return Listing(folder, msgspec.msgpack.decode(text, type=list[Placed]))
    except (OSError, msgspec.MsgspecError):
        return None


def list_path(folder: Path) -> Path:
    """The path of the list of a folder's files."""
    return folder.with_name(f".{folder.name}{_LIST}")


def listed_folders(project: Path) -> list[Path]:
    """A project's folders that have a list of their files, the newest first.

    Raises:
        OSError: the project's folder cannot be read.
    """
    lists = [path for path in project.iterdir() if path.name[0] == "." and path.name.endswith(_LIST)]
    lists.sort(key=lambda path: path.lstat().st_mtime, reverse=True)
    folders = [path.with_name(path.name[1 : -len(_LIST)]) for path in lists]
    return [folder for folder in folders if folder.is_dir()]


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while part := file.read(CHUNK):
            digest.update(part)
    return digest.digest()


def _is_unchanged(path: Path, placed: Placed) -> bool:
    try:
        if placed.file.target is not None:
            return os.fsencode(os.readlink(path)) == placed.file.target  # noqa: PTH115 - not normalized
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size != placed.file.size:
            return False
        return about.st_mtime_ns == placed.mtime or _digest_of(path) == placed.file.digest
    except OSError:
        return False


# The lock of a project: shared by submissions, exclusive for a removal


@contextlib.contextmanager
def in_use(project: Path) -> Iterator[None]:
    """Protect the code of a project from removal.

    Raises:
        OSError: the lock file cannot be created.
        CastoffError: a removal has held the lock for too long.
    """
    with _lock_file(project) as file:
        with contextlib.suppress(NoLocks):  # without locks, code is never removed: see `alone`
            try:
                take(file.fileno(), _LOCK_PATIENCE, inherited=False, shared=True)
            except BlockingIOError:
                raise CastoffError(
                    f"{printable(str(project))}: another command is removing code "
                    "there; call the same command again"
                ) from None
        yield


@contextlib.contextmanager
def alone(project: Path) -> Iterator[bool]:
    """Lock the code of a project against submissions; yields False if one is in progress.

    Raises:
        OSError: the lock file cannot be created, or the file system has no locks.
    """
    with _lock_file(project) as file:
        yield try_lock(file.fileno(), inherited=False)


def _lock_file(project: Path) -> IO[str]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(project / ".lock", flags, 0o600), "r+")
