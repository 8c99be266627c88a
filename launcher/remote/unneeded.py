"""Find and remove folders on a machine that nothing needs: code of removed runs, and old castoff
installations.

A folder of code is kept if its path appears in a run's records, if a file in it was added or changed, or if
it is the newest of its project, from which the next submission copies. An installation is kept if it was
called in the last thirty days; all are kept while a run is active.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.code_store import CODE, Listing, alone, list_path, listed_folders, listing_of
from castoff.launcher.remote.installer import VERSION
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.removal import empty
from castoff.launcher.runs.run import RUNS_FOLDER
from castoff.launcher.status.overview import Overview

_RECORDS = ("submission.json", "job.yaml", "job.sh", "plan.json")
"""Files of a run that contain the path of its code's folder."""

_CACHE = "__pycache__"

_UNUSED = 30 * 24 * 3600.0
"""Seconds without a call after which an installation of castoff is old: another laptop may still use a newer
one.
"""


class Found(NamedTuple):
    """The result of a search for folders that nothing needs."""

    unneeded: list[Path]
    notes: list[str]
    """Messages about folders of code that are kept although no run needs them."""


def unneeded(folder: Path, environ: Mapping[str, str]) -> Found:
    """Find the folders of code and the castoff installations that nothing needs.

    Raises:
        CastoffError: the records cannot be read.
    """
    named = _Named(folder, environ)
    notes: list[str] = []
    unused: list[Path] = []
    for project in _folders(folder / CODE):
        for code in _earlier(project):
            if code in named or (listing := listing_of(code)) is None:
                continue
            if (file := _not_sent(listing)) is None:
                unused.append(code)
            else:
                notes.append(
                    f"{printable(str(code))} stays: {printable(file)} in it was added or changed since"
                )
    return Found([*unused, *_castoffs(environ)], notes)


def remove(folder: Path, meant: list[Path], environ: Mapping[str, str]) -> list[Path]:
    """Remove the folders of `meant` that are still unneeded, and return them.

    Raises:
        CastoffError: the records cannot be read, or a folder cannot be removed.
    """
    removed: list[Path] = []
    try:
        for project in _folders(folder / CODE):
            if wanted := [path for path in meant if path.parent == project]:
                removed += _remove_code(project, wanted, lambda: _Named(folder, environ))
        for path in _castoffs(environ):
            if path in meant:
                (path / "complete").unlink()  # so that a partly removed installation is not used
                empty(path)
                removed.append(path)
    except OSError as error:
        raise CastoffError(f"{error.filename or folder}: cannot be removed: {error.strerror}") from error
    return removed


def size(path: Path) -> int:
    """The total size of all files in a folder, in bytes."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - many of them
            except OSError:
                continue
    return total


# Code


class _Named:
    """The set of code folders that appear in the records of runs."""

    def __init__(self, folder: Path, environ: Mapping[str, str]):
        """Read the records.

        Raises:
            CastoffError: a record cannot be read.
        """
        folders = {folder / RUNS_FOLDER, *Index.of(environ).folders()}
        if other := environ.get("CASTOFF_RUNS_DIR"):
            folders.add(folder / other)
        try:
            self._texts = [text for runs in folders for text in _records(runs)]
        except OSError as error:
            raise CastoffError(
                f"{error.filename}: cannot be read ({error.strerror}), so its run may need any code; "
                "nothing is removed"
            ) from error

    def __contains__(self, code: Path) -> bool:
        # These names have only plain characters, which JSON, YAML and shell do not escape.
        name = f"/{code.parent.name}/{code.name}".encode()
        return any(name in text for text in self._texts)


def _records(folder: Path) -> Iterator[bytes]:
    """Yield the records of all runs in a folder, including runs that are being made."""
    for run in _folders(folder):
        for name in _RECORDS:
            try:
                yield (run / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue


def _folders(folder: Path) -> list[Path]:
    """The subfolders of a folder; empty if it does not exist."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _earlier(project: Path) -> list[Path]:
    """A project's folders of code except the newest."""
    if project.is_symlink():
        return []
    return [folder for folder in listed_folders(project)[1:] if not folder.is_symlink()]


def _not_sent(listing: Listing) -> str | None:
    """The name of a file that was changed or added since the code was sent; None if there is none."""
    if (changed := listing.first_changed()) is not None:
        return changed
    sent = {os.fsdecode(file.file.name) for file in listing.files}
    for path, inner, files in os.walk(listing.folder):
        folder = Path(path)
        links = [name for name in inner if (folder / name).is_symlink()]
        inner[:] = [name for name in inner if name != _CACHE and name not in links]
        for name in (*links, *files):
            within = str((folder / name).relative_to(listing.folder))
            if within not in sent:
                return within
    return None


def _remove_code(project: Path, wanted: list[Path], records: Callable[[], _Named]) -> list[Path]:
    """Remove the folders among `wanted` that no run needs; none while a submission is running."""
    removed: list[Path] = []
    aside: list[Path] = []
    with alone(project) as is_alone:
        if not is_alone:
            return []
        # Read the records under the lock: all runs that use the code are recorded, and no new one can begin.
        named = records()
        for path in _earlier(project):
            listing = listing_of(path) if path in wanted and path not in named else None
            if listing is None or _not_sent(listing) is not None:
                continue
            aside.append(path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}.partial"))
            path.rename(aside[-1])  # after an interruption, a later transfer removes the rest
            list_path(path).unlink()
            removed.append(path)
    for path in aside:
        empty(path)
    return removed


# Installations of castoff


def _castoffs(environ: Mapping[str, str]) -> list[Path]:
    """Old installations next to this one; empty unless `castoff on install` made this one."""
    running = Path(sys.prefix).resolve()
    if not VERSION.fullmatch(running.name):
        return []
    home = running.parent
    in_use = {(home / "current").resolve(), running}
    old = []
    for path in _folders(home):
        if path.is_symlink() or path.resolve() in in_use or not VERSION.fullmatch(path.name):
            continue
        try:
            if time.time() - (path / "complete").lstat().st_mtime > _UNUSED:
                old.append(path)
        except OSError:
            continue
    if old and any(row.summary.state != "ended" for row in Overview.asked(Index.of(environ)).rows):
        return []
    return old
