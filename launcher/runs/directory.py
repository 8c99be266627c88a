"""Run directories on disk: what is one, which may be believed, and which lie under a folder."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from launcher.errors import CastoffError

HIDDEN = re.compile(r"\.(?P<id>.+)\.(?P<kind>new|draft|swept)")
"""The name of a run directory that is just begun, in the making, or being taken away."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

DEPTH = 8
"""How many folders deep a search goes."""


def draft_of(path: Path) -> Path:
    """Where the run directory `path` is made before it has its name."""
    return path.with_name(f".{path.name}.draft")


def is_draft(path: Path) -> bool:
    """Whether a path is that of a run directory in the making."""
    return HIDDEN.fullmatch(path.name) is not None


def is_run_directory(path: Path) -> bool:
    """Whether a run directory, or a link to one, is there."""
    try:
        beside = (path / "attempts").is_dir() or (path / "submission.json").is_file()
        return beside and (path / "job.sh").is_file() and not is_draft(path)
    except (OSError, ValueError):  # a word that is no path: too long, or with a zero byte
        return False


def check_trusted(path: Path) -> None:
    """Make sure that only this user can have written what lies in a run directory.

    Links on the way to it are the user's own affair; one in its place is not followed.

    Raises:
        CastoffError: it is a link, somebody else's, or open for others to write to, or is not there.
    """
    try:
        about = path.lstat()
    except OSError as error:
        raise CastoffError(f"{path}: cannot be looked at: {error.strerror}") from error
    if stat.S_ISLNK(about.st_mode):
        raise CastoffError(
            f"{path}: is a link to {path.readlink()}, and castoff follows none in place of a run "
            "directory; name the directory itself"
        )
    if not stat.S_ISDIR(about.st_mode):
        raise CastoffError(f"{path}: is no directory, so it is no run")
    _check_ours(path, about)


def _check_ours(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise CastoffError(
            f"{path}: belongs to {_who(about.st_uid)} and you are {_who(os.geteuid())}: castoff neither "
            "believes nor changes somebody else's run"
        )
    if about.st_mode & _OTHERS_WRITE:
        raise CastoffError(
            f"{path}: others may write to it (mode {stat.S_IMODE(about.st_mode):04o}), so what it says may "
            f"be theirs; if you trust it, chmod go-w {path}"
        )


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a run directory that only this user can have written to: a file descriptor.

    What is opened by it lies in that directory, whatever others put in its place meanwhile.

    Raises:
        CastoffError: as `check_trusted`.
    """
    check_trusted(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        _check_ours(path, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def open_own(name: str, directory: int) -> BinaryIO:
    """Open a file in a run directory that is open: one of the user's own, and no link.

    Raises:
        CastoffError: it is not such a file.
        OSError: it cannot be opened.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise CastoffError(f"{name}: is no file of yours, so it is not read")


class Replaced(CastoffError):
    """A run directory is not what it was when it was made or opened."""


class Sealed(NamedTuple):
    """A run directory whose script is about to be sent: open, so that no other can pass for it."""

    path: Path
    directory: int
    """Its file descriptor."""
    script: bytes
    """What its job.sh holds."""

    def check(self, since: Mapping[Path, int] | None = None) -> dict[Path, int]:
        """Make sure that whoever reads the script by its path reads this one.

        Returns when each folder around it that others could rename was last changed; with `since`, that of
        an earlier look, that whoever has read it meanwhile has read this one, too.

        Raises:
            Replaced: he would not, or may not have.
        """
        try:
            about = self.path.lstat()
        except OSError:
            about = None
        if about is None or not os.path.samestat(about, os.fstat(self.directory)):
            raise Replaced(
                f"{self.path}: was moved, or something else put in its place, while it was being submitted"
                f"{_whose_doing(self.path)}"
            )
        try:
            _check_ours(self.path, about)
            with open_own("job.sh", self.directory) as file:
                found = file.read(len(self.script) + 1)
        except (CastoffError, OSError) as error:
            raise Replaced(f"{self.path}: was changed while it was being submitted: {error}") from error
        if found != self.script:
            raise Replaced(f"{self.path}/job.sh: was changed while it was being submitted")
        try:
            return self._changed_around(since or {})
        except OSError as error:
            raise Replaced(f"{self.path}: was moved while it was being submitted: {error}") from error

    def _changed_around(self, since: Mapping[Path, int]) -> dict[Path, int]:
        changed = {}
        for folder in self.path.parents:
            if _why_replaceable(folder.parent.stat()) is None:
                continue
            about = folder.stat()
            changed[folder] = about.st_ctime_ns
            # To rename a folder changes it alone; what is put into it or taken out, its contents as well.
            if about.st_ctime_ns not in (since.get(folder, about.st_ctime_ns), about.st_mtime_ns):
                raise Replaced(
                    f"{folder}: was renamed and renamed back while {self.path.name} was being submitted, so "
                    f"something else may have been sent in its place{_whose_doing(self.path)}"
                )
        return changed


def make_folder(folder: Path) -> None:
    """Make a folder and those that it lies in, so that nobody else may write to them.

    The umask of many groups lets others write to new folders, and so rename what lies in them.

    Raises:
        OSError: it cannot be made.
    """
    try:
        folder.mkdir(mode=0o755)
    except FileNotFoundError:
        if folder.parent.exists():  # there can be none, as in /proc
            raise
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise


def check_folder(folder: Path) -> None:
    """Make sure that nobody else can put a directory of his in place of one in `folder`, no link.

    Raises:
        CastoffError: somebody can.
        OSError: it cannot be looked at.
    """
    about = folder.stat()
    why = _why_replaceable(about)
    if why is None:
        return
    danger = f"{folder}: {why}, who can put a directory of theirs in place of a run of yours"
    if about.st_uid == os.geteuid():
        who = "".join(word for word, bit in (("g", stat.S_IWGRP), ("o", stat.S_IWOTH)) if about.st_mode & bit)
        raise CastoffError(f"{danger}; chmod {who}-w {folder}")
    own = folder / _who(os.geteuid()).split()[-1]
    raise CastoffError(
        f"{danger}; choose one of your own, as with --runs-dir {own} (a run directory can be moved there)"
    )


def _why_replaceable(about: os.stat_result) -> str | None:
    """Who may rename what lies in a folder, if anybody but this user and root may."""
    if about.st_uid not in (0, os.geteuid()):
        return f"belongs to {_who(about.st_uid)}"
    if about.st_mode & _OTHERS_WRITE and not about.st_mode & stat.S_ISVTX:
        return f"may be written to by others (mode {stat.S_IMODE(about.st_mode):04o})"
    return None


def _whose_doing(path: Path) -> str:
    """What lets others do that."""
    for folder in reversed(path.parents):
        with contextlib.suppress(OSError):
            if why := _why_replaceable(folder.stat()):
                elsewhere = "choose a folder elsewhere with --runs-dir or CASTOFF_RUNS_DIR"
                return f": {folder} {why}, who can rename what lies in it; {elsewhere}"
    return ""


def _who(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


class Found(NamedTuple):
    """What a search for run directories came across."""

    directories: list[Path]
    refused: list[str]
    """Why others are not among them."""
    unread: int
    """Folders that may not be read."""
    too_deep: int
    """Folders that lie too deep to be looked into."""


def find_run_directories(folder: Path) -> Found:
    """The user's run directories in a folder and below, down to `DEPTH` folders.

    Follows no links, and leaves out hidden folders and those of other users.

    Raises:
        CastoffError: the folder cannot be read.
    """
    try:
        top = folder.resolve(strict=True)
        os.scandir(top).close()
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be searched: {error.strerror}") from error
    directories, refused = [], []
    unread: list[OSError] = []
    too_deep = 0
    for path, inner, _ in os.walk(top, onerror=unread.append):
        here = Path(path)
        inner[:] = sorted(name for name in inner if _may_hold_runs(here / name))
        if "attempts" in inner and is_run_directory(here):
            inner.clear()
            try:
                check_trusted(here)
                directories.append(here)
            except CastoffError as error:
                refused.append(str(error))
        elif len(here.parts) - len(top.parts) >= DEPTH:
            too_deep += len(inner)
            inner.clear()
    return Found(directories, refused, len(unread), too_deep)


def _may_hold_runs(path: Path) -> bool:
    """Whether a folder is the user's own and not hidden."""
    try:
        about = path.lstat()
    except OSError:  # it has just gone
        return False
    return path.name[0] != "." and stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
