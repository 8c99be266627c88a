"""Fetch the results of runs into a folder on the laptop: only what it lacks, each file complete or absent.

FOLDER/…                    the files, with the machine's times, by which the next call knows them
FOLDER/.castoff-pull/WORD   what has arrived so far of a file; a later call continues it

A name from the machine is used only if it stays in the folder, and no link in the folder is followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import NoLocks, try_lock
from castoff.launcher.remote.machine import Machine, Session
from castoff.launcher.remote.messages import (
    MOST_LISTED,
    Files,
    Item,
    Listed,
    Part,
    Result,
    Results,
    Send,
    UnexpectedMessage,
    Unread,
    Wanted,
    Whole,
)
from castoff.launcher.text.words import size_words

_DRAFTS = ".castoff-pull"
_READ = 1 << 20
_PROGRESS_PAUSE = 0.25

_NAMES = (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL)
"""Errors for names that a file system does not take, as a Mac's those that are not UTF-8."""

_Digest: TypeAlias = "hashlib._Hash"


class NotFetched(NamedTuple):
    """A file that was not fetched."""

    name: str
    why: str


class Pull:
    """Results that are fetched, in one session or, if the connection breaks, in several."""

    def __init__(self, machine: Machine, wanted: Wanted, folder: Path | None, show: Callable[[str], object]):
        """`folder`: where to; None: a folder with the run's id in the working directory. `show`: shows
        progress.
        """
        self.folder = folder
        self.name = ""
        """The id of the run or of the group."""
        self.fetched: dict[str, int] = {}
        """The files that have arrived, and their sizes."""
        self.unchanged: set[str] = set()
        """The files that were there already."""
        self.failed: list[NotFetched] = []
        self.left_out: list[NotFetched] = []
        self.unmatched: list[str] = []
        self._machine, self._wanted, self._show = machine, wanted, show

    def once(self, typed: list[str]) -> None:
        """Fetch what is missing. `typed`: the command that continues.

        Raises:
            ConnectionBroken: the connection cannot be made, or broke.
            CastoffError: the machine refuses, or the folder cannot be written.
        """
        with self._machine.session(typed) as session:
            listed = session.ask(self._wanted, "castoff asked for the list of files")
            if not isinstance(listed, Listed):
                raise UnexpectedMessage("it did not list the files")
            if not all(map(_is_name, (listed.name, *(run.run for run in listed.runs)))):
                raise UnexpectedMessage("it named a run that cannot be one")
            files = [_files(session, run.files) for run in listed.runs]
            self.name = listed.name
            self.folder = (self.folder or Path(listed.name)).absolute()
            self._fetch(session, listed, files, self.folder)

    def _fetch(self, session: Session, listed: Listed, files: list[list[Result]], top: Path) -> None:
        folders = [_Folder(top / run.run if listed.is_group else top) for run in listed.runs]
        labels = [f"{run.run}/" if listed.is_group else "" for run in listed.runs]
        self.failed, self.left_out, self.unmatched = [], [], []
        wanted: list[tuple[Item, Result, str]] = []
        for number, (run, folder, label) in enumerate(zip(listed.runs, folders, labels, strict=True)):
            self._note(run, label)
            with _written(top):
                wanted += self._lacking(number, files[number], folder, label)
        if wanted:
            session.send(Send([item for item, _, _ in wanted]))
        progress = _Progress(self._show, len(wanted), sum(result.size for _, result, _ in wanted))
        for item, result, name in wanted:
            session.doing = f"it sent {name}; what has arrived stays here"
            with _written(top):
                why = folders[item.run].receive(result, item, _answers(session, progress))
            if why is None:
                self.fetched[name] = result.size
            else:
                self.failed.append(NotFetched(name, why))
        for folder in folders:
            folder.clean()

    def _note(self, run: Results, label: str) -> None:
        for one in run.left_out:
            size = f" ({size_words(one.size)})" if one.size else ""
            self.left_out.append(NotFetched(label + _text(one.name), one.why + size))
        self.unmatched += [label + pattern for pattern in run.unmatched]

    def _lacking(
        self, number: int, files: list[Result], folder: _Folder, label: str
    ) -> Iterator[tuple[Item, Result, str]]:
        """The files of a run that have to be sent."""
        for place, result in enumerate(files):
            name = label + _text(result.name)
            if (why := folder.obstacle(result)) is not None:
                self.failed.append(NotFetched(name, why))
            elif not folder.has(result):
                offset, digest = folder.base(result)
                yield Item(number, place, offset, digest), result, name
            elif name not in self.fetched:
                self.unchanged.add(name)


def _is_name(word: str) -> bool:
    """Whether a word from the machine can be the name of a folder."""
    return word not in ("", ".", "..") and "/" not in word and word.isprintable()


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Report an error of the disk as one of this folder, not of the connection."""
    try:
        yield
    except OSError as error:
        where = printable(str(error.filename or folder))
        raise CastoffError(f"{where}: cannot be written: {error.strerror or error}") from error


def _files(session: Session, count: int) -> list[Result]:
    """The list of a run's files, of which so many were announced."""
    found: list[Result] = []
    while len(found) < count:
        answer = session.answer()
        if not isinstance(answer, Files) or not 0 < len(answer.files) <= MOST_LISTED:
            raise UnexpectedMessage("it did not list the files")
        found += answer.files
    return found


def _text(name: bytes) -> str:
    return printable(os.fsdecode(name))


def _answers(session: Session, progress: _Progress) -> Iterator[Part | Whole | Unread]:
    """The messages about one file, the last included."""
    while True:
        answer = session.answer()
        if not isinstance(answer, Part | Whole | Unread):
            raise UnexpectedMessage("it did not send a file")
        if not isinstance(answer, Unread):
            progress.add(answer)
        yield answer
        if not isinstance(answer, Part):
            return


class _Progress:
    """Shows what has arrived, and how fast."""

    def __init__(self, show: Callable[[str], object], files: int, size: int):
        self._show, self._files, self._size = show, files, size
        self._done = self._bytes = self._received = 0
        self._began = self._shown = time.monotonic()

    def add(self, part: Part | Whole) -> None:
        """Count a part of a file."""
        self._done += isinstance(part, Whole)
        self._received += len(part.data)
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_PAUSE:
            self._shown = now
            speed = size_words(int(self._received / (now - self._began)))
            self._show(
                f"{self._done:,} of {self._files:,} files, {size_words(self._received)} of at most "
                f"{size_words(self._size)}, {speed}/s"
            )


class _Folder:
    """The folder of one run on the laptop."""

    def __init__(self, path: Path):
        self.path = path
        self._drafts = path / _DRAFTS
        self._placed: set[tuple[int, int]] = set()
        """The files of this call, as device and inode: on a Mac, `A` and `a` are one file."""

    def obstacle(self, result: Result) -> str | None:
        """Why a file cannot have its name here; None: it can."""
        parts = result.name.split(b"/")
        if any(part in (b"", b".", b"..") for part in parts) or b"\0" in result.name:
            return "its name is not one of a file in this folder"
        if parts[0] == _DRAFTS.encode():
            return "its name is castoff's own"
        try:
            return self._in_the_way(parts)
        except OSError as error:
            if error.errno not in _NAMES:
                raise
            return f"its name cannot be one here: {error.strerror}"

    def _in_the_way(self, parts: list[bytes]) -> str | None:
        """What is here already that keeps a file from having its name, or None."""
        path = self.path
        for part in parts[:-1]:
            path = path / os.fsdecode(part)
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.lstat().st_mode):
                    return f"{printable(path.name)} is not a folder here"
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR((path / os.fsdecode(parts[-1])).lstat().st_mode):
                return "is a folder here"
        return None

    def has(self, result: Result) -> bool:
        """Whether the file is here, as its size and time show."""
        try:
            about = self._final(result).lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(about.st_mode) or (about.st_dev, about.st_ino) in self._placed:
            return False
        same = (about.st_size, about.st_mtime_ns) == (result.size, result.mtime)
        if same:
            self._placed.add((about.st_dev, about.st_ino))
        return same

    def base(self, result: Result) -> tuple[int, bytes]:
        """The number of a file's first bytes that are here, and their digest."""
        for path in (self._draft(result), self._final(result)):
            try:
                about = path.lstat()
                if not stat.S_ISREG(about.st_mode) or not 0 < about.st_size <= result.size:
                    continue
                digest = hashlib.sha256()
                with path.open("rb") as file:
                    count = _copied(file, about.st_size, digest.update)
            except FileNotFoundError:
                continue
            return count, digest.digest()
        return 0, b""

    def receive(self, result: Result, item: Item, answers: Iterator[Part | Whole | Unread]) -> str | None:
        """Receive a file; return why it cannot be one here, or None.

        Raises:
            ConnectionLost: the connection broke; what has arrived stays.
            OSError: the file cannot be written.
        """
        final, path = self._final(result), self._draft(result)
        make_folders(final.parent)
        make_folders(self._drafts)
        with self._opened(path) as draft:
            digest, at = hashlib.sha256(), 0
            for answer in answers:
                if isinstance(answer, Unread):
                    return f"cannot be read there: {printable(answer.why)}"
                if at == 0:
                    continues = 0 < answer.at == item.offset
                    at = self._start(draft, result, item, digest.update) if continues else draft.truncate(0)
                if answer.at != at or at + len(answer.data) > result.size:
                    raise UnexpectedMessage("it sent another part of a file")
                draft.write(answer.data)
                digest.update(answer.data)
                at += len(answer.data)
            assert isinstance(answer, Whole)
            if digest.digest() != answer.digest:
                path.unlink()
                return "arrived damaged; call the command again"
            draft.flush()
            os.fchmod(draft.fileno(), result.mode & 0o700 | 0o600)
            os.utime(draft.fileno(), ns=(answer.mtime, answer.mtime))
            return self._place(path, final)

    def clean(self) -> None:
        """Remove the folder of files that are arriving, if nothing is in it but what never began."""
        with contextlib.suppress(OSError):
            for path in self._drafts.iterdir():
                if not path.lstat().st_size:
                    path.unlink()
            self._drafts.rmdir()

    def _place(self, draft: Path, final: Path) -> str | None:
        """Give a complete file its name."""
        with contextlib.suppress(FileNotFoundError):
            about = final.lstat()
            if (about.st_dev, about.st_ino) in self._placed:
                draft.unlink()
                return "is the same name as another one's here, where capitals do not count"
        about = draft.lstat()
        try:
            draft.replace(final)
        except OSError as error:
            if error.errno not in _NAMES:
                raise
            draft.unlink()
            return f"its name cannot be one here: {error.strerror}"
        self._placed.add((about.st_dev, about.st_ino))
        return None

    def _final(self, result: Result) -> Path:
        return self.path / os.fsdecode(result.name)

    def _draft(self, result: Result) -> Path:
        return self._drafts / hashlib.sha256(result.name).hexdigest()[:32]

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[IO[bytes]]:
        """Open and lock the draft of a file."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as draft:
            with contextlib.suppress(NoLocks):
                alone = try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), path.lstat())
                if not alone:
                    raise CastoffError(f"{printable(str(self.path))}: another castoff pull writes there now")
            yield draft

    def _start(self, draft: IO[bytes], result: Result, item: Item, update: Callable[[bytes], object]) -> int:
        """Go to the end of what is here already, and return its size."""
        if not os.fstat(draft.fileno()).st_size:  # what is here is the file as an earlier call fetched it
            with self._final(result).open("rb") as earlier:
                return _copied(earlier, item.offset, lambda data: (update(data), draft.write(data)))
        count = _copied(draft, item.offset, update)
        draft.seek(count)
        draft.truncate()
        return count


def _copied(file: IO[bytes], size: int, take: Callable[[bytes], object]) -> int:
    """Pass the first bytes of a file on, and return their number."""
    count = 0
    while count < size and (data := file.read(min(_READ, size - count))):
        take(data)
        count += len(data)
    return count
