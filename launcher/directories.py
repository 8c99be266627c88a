"""Run directories on disk: what is one, which may be believed, and which lie under a folder."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from launcher.errors import CastoffError

HIDDEN = re.compile(r"\.(?P<id>.+)\.(?P<kind>new|draft|swept)")
"""The name of a run directory that is just begun, in the making, or being taken away."""

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
    if about.st_uid != os.geteuid():
        raise CastoffError(
            f"{path}: belongs to {_who(about.st_uid)} and you are {_who(os.geteuid())}: castoff neither "
            "believes nor changes somebody else's run"
        )
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CastoffError(
            f"{path}: others may write to it (mode {stat.S_IMODE(about.st_mode):04o}), so what it says may "
            f"be theirs; if you trust it, chmod go-w {path}"
        )


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
    unread = too_deep = 0
    waiting = [(top, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            inner = _folders(here)
        except OSError:
            unread += 1
            continue
        if "attempts" in inner and is_run_directory(here):
            try:
                check_trusted(here)
                directories.append(here)
            except CastoffError as error:
                refused.append(str(error))
        elif depth < DEPTH:
            waiting.extend((here / name, depth + 1) for name in sorted(inner, reverse=True))
        else:
            too_deep += len(inner)
    return Found(directories, refused, unread, too_deep)


def _folders(path: Path) -> list[str]:
    """The folders in a folder that are the user's own and not hidden."""
    own = os.geteuid()
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):  # it has just gone
                if entry.stat(follow_symlinks=False).st_uid == own:
                    found.append(entry.name)
    return found
