"""Removing run directories: only of runs that are over, each whole or not at all.

A directory first gets a hidden name beside its old one, and is emptied then. Whoever looks sees a run or
none; what an interrupt leaves has that name, and the next removal or submission sweeps it up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import HIDDEN
from castoff.launcher.runs.run import RunDirectory

_PATIENCE = 5.0
"""Seconds: a scheduler whose members have all ended is about to go."""


def size(run: RunDirectory) -> int:
    """Bytes of all files in a run directory.

    Raises:
        CastoffError: something in it could not be removed.
    """
    own = os.geteuid()
    total = 0
    for folder, inner, files in os.walk(run.path):  # what may not be looked into counts nothing
        try:
            about = os.lstat(folder)
        except FileNotFoundError:  # somebody else removes it, too
            continue
        if own not in (0, about.st_uid) and (inner or files):
            raise CastoffError(
                f"{folder}: belongs to another user ({about.st_uid}), so you cannot remove its "
                f"contents; ask them to, or chown it. {run.id} was left as it is"
            )
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - many of them
    return total


def remove(run: RunDirectory) -> None:
    """Remove the directory of a run that is over.

    Raises:
        CastoffError: it is active or about to restart, or it cannot be removed, or not wholly.
    """
    try:
        # A new beginning needs this lock first, and its scheduler holds it.
        with run.locked(_PATIENCE):
            hidden = set_aside(run.path, run.id)
    except BlockingIOError:
        reason = "something of it is still there, or just begins; `castoff cancel` ends it"
        raise CastoffError(f"{run.id}: {reason}") from None
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be removed: {error.strerror}") from error
    empty(hidden)


def set_aside(path: Path, run_id: str) -> Path:
    """Rename a directory, whose lock the caller holds, so that nobody finds it any more.

    Raises:
        OSError: it cannot be renamed.
    """
    hidden = path.with_name(f".{run_id[:200]}-{os.urandom(3).hex()}.swept")
    path.rename(hidden)
    return hidden


def sweep(folder: Path) -> list[str]:
    """Take away what interrupted submissions and removals have left in `folder`.

    The ids that those submissions would have had; but for those without a script, which may have begun anew.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # gone, or not ours to look into: then nothing of ours was left there either
        return []
    interrupted: list[str] = []
    for known in filter(None, (HIDDEN.fullmatch(path.name) for path in paths)):
        # Somebody else's, held by somebody, or not to be had: no harm.
        with contextlib.suppress(OSError, CastoffError):
            left = RunDirectory(folder / known[0])
            if known["kind"] == "draft":
                with left.locked(patience=0):
                    left = RunDirectory(set_aside(left.path, known["id"]))
                if left.script.exists():
                    interrupted.append(known["id"])
            empty(left.path)
    return interrupted


def empty(path: Path) -> None:
    """Remove a directory and all in it; follows no link, neither in it nor in its place."""
    shutil.rmtree(path, ignore_errors=True)
    if not path.exists():
        return
    try:
        _open_folders(path)
        shutil.rmtree(path)
    except FileNotFoundError:
        return  # another sweep was quicker
    except OSError as error:
        raise CastoffError(
            f"{path}: what is left of a removed run cannot be removed: {error.filename}: {error.strerror}; "
            "once it can, the next `castoff clean` does it"
        ) from error


def _open_folders(path: Path) -> None:
    """Lift the protection of folders that package managers put on them, each before it is looked into.

    Of folders alone: a file may be a hard link into somebody's cache.
    """
    path.chmod(0o700)
    for folder, inner, _ in os.walk(path):
        for one in (Path(folder, name) for name in inner):
            with contextlib.suppress(OSError):  # somebody else's, which the removal then says
                if not one.is_symlink():
                    one.chmod(0o700)
