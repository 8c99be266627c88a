"""The code of submissions on the machine: each in a folder of its own, which is complete or not there.

FOLDER/code/PROJECT/NAME/           the files, as they were sent
FOLDER/code/PROJECT/.NAME.files     which these are
FOLDER/code/PROJECT/.NAME.partial/  what has arrived so far; each file in it is whole
FOLDER/code/PROJECT/.WORD.draft     a file that is just arriving
FOLDER/code/PROJECT/.lock           held while code is sent and submitted: nothing is removed meanwhile

Files are copies: a hard link would let what one job writes show through in the code of another.
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

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.code_listing import Placed, digest_of, listed_folders, listing_of, write_listing
from castoff.launcher.remote.code_lock import in_use
from castoff.launcher.remote.frames import CHUNK, Code, File, Part
from castoff.launcher.runs.removal import empty
from castoff.launcher.trust.folders import make_folders

CODE = "code"
"""The folder of all code, in the entry's."""

_EARLIER = 20
"""Folders of the same project in which contents are looked for, the newest first."""

_ABANDONED = 14 * 24 * 3600.0
"""Seconds after which a transfer that nobody continued is removed."""


class Store:
    """The code of one project."""

    def __init__(self, folder: Path, code: Code, held: ExitStack):
        """`folder` is the entry's. Until `held` is closed, nothing of the project's code is removed.

        Raises:
            CastoffError: the list of files names one outside of its folder, or cannot be.
        """
        _check_names(code)
        self._code = code
        self._project = folder / CODE / code.project
        self.note: str | None = None
        """What the user should know."""
        make_folders(self._project, 0o755)
        held.enter_context(in_use(self._project))
        self.folder = self._choose()
        """Where the code is, or will be."""
        self._partial = self._project / f".{self.folder.name}.partial"
        self._whole: set[bytes] = set()
        """The names of files that are in their places."""

    @property
    def is_complete(self) -> bool:
        """Whether all of it is there; another transfer of the same may have brought it meanwhile."""
        return self.folder.is_dir()

    def lacking(self) -> list[int]:
        """Which contents have to be sent; those that are here already are put in their places.

        Raises:
            OSError: they cannot be written.
        """
        with self._unless_complete():
            return self._lacking()
        return []

    def _lacking(self) -> list[int]:
        self._partial.mkdir(mode=0o700, exist_ok=True)
        self._sweep()
        self._remove_others()
        known = self._contents()
        lacking: dict[bytes, int] = {}
        for number, file in enumerate(self._code.files):
            if file.target is not None or file.digest in lacking or self._has(file):
                continue
            if file.size == 0:
                self._write(file, iter([b""]))
            elif not any(self._copied(source, file) for source in known.get(file.digest, [])):
                lacking[file.digest] = number
        return list(lacking.values())

    def take(self, number: int, parts: Iterator[Part]) -> None:
        """Put a content that is sent in its place, once it has arrived whole.

        Raises:
            CastoffError: it is another than was listed.
            OSError: it cannot be written.
        """
        file = self._code.files[number]
        arrived = True
        with self._unless_complete():
            arrived = self._write(file, (part.data for part in parts))
        if not arrived:
            raise CastoffError(
                f"{printable(os.fsdecode(file.name))}: arrived damaged; call the command again"
            )

    def finish(self) -> Path:
        """Give the folder its name, now that all contents are there.

        Raises:
            CastoffError: one is missing.
            OSError: it cannot be written.
        """
        with self._unless_complete():
            if not self.is_complete:
                self._finish()
        if self._partial.is_dir():  # another transfer of the same was quicker
            empty(self._partial)
        return self.folder

    def _finish(self) -> None:
        by_digest = {file.digest: self._place(file) for file in self._code.files if file.name in self._whole}
        placed = []
        for file in self._code.files:
            if file.target is not None:
                continue
            source = by_digest.get(file.digest)
            if source is None or not (file.name in self._whole or self._copied(source, file)):
                raise CastoffError(
                    f"{printable(os.fsdecode(file.name))}: did not arrive; call the command again"
                )
            self._place(file).chmod(_mode(file))
            placed.append(Placed(file, self._place(file).lstat().st_mtime_ns))
        for file in self._code.files:
            if file.target is not None:
                self._link(file, file.target)
                placed.append(Placed(file, 0))
        write_listing(self.folder, placed)
        self._partial.rename(self.folder)

    @contextlib.contextmanager
    def _unless_complete(self) -> Iterator[None]:
        """Pass over what fails because another transfer of the same has completed the folder meanwhile."""
        try:
            yield
        except OSError:
            if not self.is_complete:
                raise

    # Folders

    def _choose(self) -> Path:
        """The first folder of the code's name that is not there, or holds these files unchanged."""
        wanted = {file.name: file for file in self._code.files}
        number = 1
        while True:
            folder = self._project / (self._code.name if number == 1 else f"{self._code.name}.{number}")
            if not os.path.lexists(folder):
                return folder
            kept = listing_of(folder)
            changed = kept.first_changed() if kept else "its list of files"
            if kept and changed is None and {one.file.name: one.file for one in kept.files} == wanted:
                return folder
            number += 1
            if changed is not None:
                self.note = (
                    f"{printable(str(folder))}: {printable(changed)} was changed there since it was sent, so "
                    f"the code is in another folder, {self._code.name}.{number}; that one stays as it is"
                )

    def _contents(self) -> dict[bytes, list[Path]]:
        """Where earlier folders of the project have contents, by their digests."""
        found: dict[bytes, list[Path]] = {}
        for folder in listed_folders(self._project)[:_EARLIER]:
            kept = listing_of(folder)
            for one in kept.files if kept else []:
                if one.file.target is None:
                    found.setdefault(one.file.digest, []).append(folder / os.fsdecode(one.file.name))
        return found

    def _sweep(self) -> None:
        """Remove what interrupted transfers left long ago."""
        for path in self._project.glob(".*"):
            with contextlib.suppress(OSError, CastoffError):
                is_left = path.name.endswith((".partial", ".draft")) and path != self._partial
                if is_left and time.time() - path.lstat().st_mtime > _ABANDONED:
                    path.unlink() if path.name.endswith(".draft") else empty(path)

    def _remove_others(self) -> None:
        """Remove what is in the partial folder and not listed: of other code with the same name."""
        names = {file.name for file in self._code.files}
        for folder, inner, files in os.walk(self._partial):
            for path in (Path(folder, one) for one in (*inner, *files)):
                is_folder = path.is_dir() and not path.is_symlink()
                if not is_folder and os.fsencode(path.relative_to(self._partial)) not in names:
                    path.unlink()

    # Files

    def _place(self, file: File) -> Path:
        return self._partial / os.fsdecode(file.name)

    def _has(self, file: File) -> bool:
        """Whether a file is in its place: only whole ones ever are."""
        try:
            about = self._place(file).lstat()
        except OSError:
            return False
        is_it = stat.S_ISREG(about.st_mode) and about.st_size == file.size
        if is_it and digest_of(self._place(file)) == file.digest:
            self._whole.add(file.name)
        return file.name in self._whole

    def _copied(self, source: Path, file: File) -> bool:
        """Whether a content could be copied; one that was changed is another."""
        try:
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as opened:
            return self._write(file, iter(lambda: opened.read(CHUNK), b""))

    def _write(self, file: File, content: Iterator[bytes]) -> bool:
        """Write a file and put it in its place; False, and nothing is left, if it is not what was listed."""
        place = self._place(file)
        make_folders(place.parent)
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
            draft.replace(place)
            self._whole.add(file.name)
            return True
        finally:
            with contextlib.suppress(OSError):  # it has its name, or was never made
                draft.unlink()

    def _link(self, file: File, target: bytes) -> None:
        place = self._place(file)
        make_folders(place.parent)
        with contextlib.suppress(FileNotFoundError):
            place.unlink()
        place.symlink_to(os.fsdecode(target))


def _mode(file: File) -> int:
    """Of a file's permissions: never for others to write, always for its owner to read and write."""
    return (file.mode & 0o755) | 0o600


def _check_names(code: Code) -> None:
    """See that every file lies in the folder, and that none is a part of another's way.

    Raises:
        CastoffError: otherwise.
    """
    for word in (code.project, code.name):
        if not word or "/" in word or word.startswith(".") or "\0" in word:
            raise CastoffError(f"code: {printable(word)!r} is not a name for a folder")
    names = {file.name for file in code.files}
    if len(names) < len(code.files):
        raise CastoffError("code: a file is listed twice")
    ways: set[bytes] = set()
    for name in names:
        parts = name.split(b"/")
        if not all(part not in (b"", b".", b"..") and b"\0" not in part for part in parts):
            raise CastoffError(
                f"code: {printable(os.fsdecode(name))!r} is not a file within the code's folder"
            )
        ways.update(b"/".join(parts[:count]) for count in range(1, len(parts)))
    if both := ways & names:
        raise CastoffError(
            f"code: {printable(os.fsdecode(both.pop()))!r} is listed as a file and as a folder"
        )
