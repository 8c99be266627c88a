"""Removes directories of runs that are over, each whole or not at all.

A directory is renamed to a hidden name in the same folder, and then emptied, so that others see a whole run
or none. If this is interrupted, the next removal or submission removes the hidden directory.
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
"""Seconds to wait for the lock: a scheduler whose members have all ended is about to exit."""


def size(run: RunDirectory) -> int:
    """Bytes of all files in a run directory.

    Raises:
        CastoffError: it contains files that the user cannot remove.
    """
    user = os.geteuid()
    total = 0
    for folder, inner, files in os.walk(run.path):  # unreadable folders count as empty
        try:
            about = os.lstat(folder)
        except FileNotFoundError:  # another process is removing it, too
            continue
        if user not in (0, about.st_uid) and (inner or files):
            raise CastoffError(
                f"{folder}: belongs to another user ({about.st_uid}), so you cannot remove its "
                f"contents; ask them to, or chown it. {run.id} was not changed"
            )
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - many of them
    return total


def remove(run: RunDirectory) -> None:
    """Remove the directory of a run that is over.

    Raises:
        CastoffError: the run is active or about to restart, or its directory cannot be removed completely.
    """
    try:
        # A resubmission takes this lock first, and its scheduler keeps it.
        with run.locked(_PATIENCE):
            hidden = set_aside(run.path, run.id)
    except BlockingIOError:
        reason = "it is still active, or just starting; `castoff cancel` ends it"
        raise CastoffError(f"{run.id}: {reason}") from None
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be removed: {error.strerror}") from error
    empty(hidden)


def set_aside(path: Path, run_id: str) -> Path:
    """Rename a run directory, whose lock the caller holds, to a hidden name.

    Raises:
        OSError: the directory cannot be renamed.
    """
    hidden = path.with_name(f".{run_id[:200]}-{os.urandom(3).hex()}.swept")
    path.rename(hidden)
    return hidden


def sweep(folder: Path) -> list[str]:
    """Remove the hidden directories that interrupted submissions and removals have left in `folder`.

    Returns the ids of the interrupted submissions, without those that had no script yet, which may have been
    submitted under another id.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # gone, or unreadable: then we cannot have left anything there
        return []
    interrupted: list[str] = []
    for match in filter(None, (HIDDEN.fullmatch(path.name) for path in paths)):
        # Another user's, locked, or not removable: leave it.
        with contextlib.suppress(OSError, CastoffError):
            left = RunDirectory(folder / match[0])
            if match["kind"] == "draft":
                with left.locked(patience=0):
                    left = RunDirectory(set_aside(left.path, match["id"]))
                if left.script.exists():
                    interrupted.append(match["id"])
            empty(left.path)
    return interrupted


def empty(path: Path) -> None:
    """Remove a directory and its contents, without following links."""
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
            "once it can, the next `castoff clean` removes it"
        ) from error


def _open_folders(path: Path) -> None:
    """Make folders writable that package managers protect, each before its contents are listed.

    Files keep their modes, since they may be hard links into a cache.
    """
    path.chmod(0o700)
    for folder, inner, _ in os.walk(path):
        for inner_folder in (Path(folder, name) for name in inner):
            with contextlib.suppress(OSError):  # another user's folder; its removal reports that
                if not inner_folder.is_symlink():
                    inner_folder.chmod(0o700)
