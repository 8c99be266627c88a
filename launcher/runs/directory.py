"""Run directories on disk: how they are recognised, found in a folder, and checked for trust."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from castoff.launcher.errors import CastoffError
from castoff.launcher.trust.decision import check, check_list
from castoff.launcher.trust.people import user_name

HIDDEN = re.compile(r"\.(?P<id>.+)\.(?P<kind>draft|swept)")
"""The name of a run directory that is being made or removed."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def draft_of(path: Path) -> Path:
    """The path at which the run directory `path` is made before it is published."""
    return path.with_name(f".{path.name}.draft")


def is_draft(path: Path) -> bool:
    """Whether a path has the name of a run directory that is being made or removed."""
    return HIDDEN.fullmatch(path.name) is not None


def is_run_directory(path: Path) -> bool:
    """Whether `path` is a run directory or a link to one."""
    try:
        beside = (path / "attempts").is_dir() or (path / "submission.json").is_file()
        return beside and (path / "job.sh").is_file() and not is_draft(path)
    except (OSError, ValueError):  # not a valid path: too long, or with a zero byte
        return False


def names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it is gone.

    Raises:
        CastoffError: the folder cannot be read.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path.iterdir takes twice as long
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be read: {error.strerror}") from error


def check_trusted(path: Path) -> None:
    """Check that only this user can have written to a run directory, if it exists.

    `RunDirectory` calls this function, so nothing else has to. Folders above the directory may be links.

    Raises:
        CastoffError: the directory is a link, belongs to another user, or is writable for others.
    """
    try:
        about = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise CastoffError(f"{path}: cannot be accessed: {error.strerror}") from error
    if stat.S_ISLNK(about.st_mode):
        raise CastoffError(
            f"{path}: is a link to {path.readlink()}, and castoff follows none in place of a run "
            "directory; name the directory itself"
        )
    if not stat.S_ISDIR(about.st_mode):
        raise CastoffError(f"{path}: is not a directory, so it cannot be a run")
    _check_ours(path, about)
    check_list(path, about)


def _check_ours(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise CastoffError(
            f"{path}: belongs to {user_name(about.st_uid)} and you are {user_name(os.geteuid())}: castoff "
            "neither reads nor changes another user's run"
        )
    if about.st_mode & _OTHERS_WRITE:
        raise CastoffError(
            f"{path}: others may write to it (mode {stat.S_IMODE(about.st_mode):04o}), so its contents may "
            f"be theirs; if you trust it, chmod go-w {path}"
        )


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a run directory to which only this user can have written, as a file descriptor.

    Files opened relative to it lie in this directory, even if others replace it meanwhile.

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
    """Open a file in an open run directory, if it is the user's own and not a link.

    Raises:
        CastoffError: the file is a link, not a regular file, or another user's.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    about = os.fstat(descriptor)
    if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise CastoffError(f"{name}: is not your file, so it is not read")


def check_folder(folder: Path) -> None:
    """Check that no other user can replace a run directory in `folder`.

    The run's script and secrets are read again long after submission.

    Raises:
        CastoffError: a user can, and the owner has not trusted that user.
    """
    check(folder, otherwise="or keep runs in another folder, with --runs-dir or CASTOFF_RUNS_DIR")


def find_run_directories(folder: Path) -> tuple[list[Path], list[str]]:
    """The user's run directories in a folder and below it, and why others were refused.

    Links are not followed; hidden folders and those of other users are left out.

    Raises:
        CastoffError: the folder cannot be read.
    """
    try:
        top = folder.resolve(strict=True)
        os.scandir(top).close()
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be searched: {error.strerror}") from error
    directories: list[Path] = []
    refused: list[str] = []

    def cannot_search(error: OSError) -> None:
        refused.append(f"{error.filename}: cannot be searched: {error.strerror}")

    for path, inner, _ in os.walk(top, onerror=cannot_search):
        folder_path = Path(path)
        inner[:] = sorted(name for name in inner if _may_hold_runs(folder_path / name))
        if "attempts" in inner and is_run_directory(folder_path):
            inner.clear()
            try:
                check_trusted(folder_path)
                directories.append(folder_path)
            except CastoffError as error:
                refused.append(str(error))
    return directories, refused


def _may_hold_runs(path: Path) -> bool:
    """Whether a folder belongs to the user and is not hidden."""
    try:
        about = path.lstat()
    except OSError:  # just removed
        return False
    return path.name[0] != "." and stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
