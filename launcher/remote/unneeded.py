"""Folders on a machine that nothing needs any more: code of runs that are gone, and old castoffs.

In doubt a folder stays: code whose name stands anywhere in a run's records, code in which a file was changed
or added, the newest code of a project, from which the next submission copies, a castoff that was called in
the last thirty days, and every other castoff as long as a run is active.
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
"""Files of a run that name the folder of its code."""

_CACHE = "__pycache__"

_UNUSED = 30 * 24 * 3600.0
"""Seconds without a call after which a castoff is old: another laptop may have installed it."""


class Found(NamedTuple):
    """The folders that nothing needs."""

    unneeded: list[Path]
    notes: list[str]
    """Folders that stay though no run names them, and why."""


def unneeded(folder: Path, environ: Mapping[str, str]) -> Found:
    """The folders of code in the entry's folder, and the castoffs, that nothing needs.

    Raises:
        CastoffError: the records cannot be read.
    """
    named = _Named(folder, environ)
    notes: list[str] = []
    found: list[Path] = []
    for project in _folders(folder / CODE):
        for code in _earlier(project):
            if code in named or (listing := listing_of(code)) is None:
                continue
            if (own := _not_sent(listing)) is None:
                found.append(code)
            else:
                notes.append(f"{printable(str(code))} stays: {printable(own)} in it is not as it was sent")
    return Found([*found, *_castoffs(environ)], notes)


def remove(folder: Path, meant: list[Path], environ: Mapping[str, str]) -> list[Path]:
    """Remove those folders of `meant` that nothing needs now, and return them.

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
                (path / "complete").unlink()  # half a castoff does not count as one
                empty(path)
                removed.append(path)
    except OSError as error:
        raise CastoffError(f"{error.filename or folder}: cannot be removed: {error.strerror}") from error
    return removed


def size(path: Path) -> int:
    """Bytes of all files in a folder."""
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
    """The folders of code that records of runs name."""

    def __init__(self, folder: Path, environ: Mapping[str, str]):
        """Read the records.

        Raises:
            CastoffError: not all can be read.
        """
        places = {folder / RUNS_FOLDER, *Index.of(environ).folders()}
        if other := environ.get("CASTOFF_RUNS_DIR"):
            places.add(folder / other)
        try:
            self._texts = [text for place in places for text in _records(place)]
        except OSError as error:
            raise CastoffError(
                f"{error.filename}: cannot be read ({error.strerror}), so it may need any code; "
                "nothing is removed"
            ) from error

    def __contains__(self, code: Path) -> bool:
        # Only plain letters, so that it stands in JSON, YAML and shell without escapes.
        name = f"/{code.parent.name}/{code.name}".encode()
        return any(name in text for text in self._texts)


def _records(place: Path) -> Iterator[bytes]:
    """The records of all runs in a folder, drafts included."""
    for run in _folders(place):
        for name in _RECORDS:
            try:
                yield (run / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue


def _folders(place: Path) -> list[Path]:
    """The folders in a folder; empty if it is not there."""
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _earlier(project: Path) -> list[Path]:
    """The folders of code of a project, without the newest."""
    if project.is_symlink():
        return []
    return [folder for folder in listed_folders(project)[1:] if not folder.is_symlink()]


def _not_sent(listing: Listing) -> str | None:
    """A file of a folder that was changed or added since it was sent; None if there is none."""
    if (changed := listing.first_changed()) is not None:
        return changed
    sent = {os.fsdecode(file.file.name) for file in listing.files}
    for place, inner, files in os.walk(listing.folder):
        at = Path(place)
        links = [name for name in inner if (at / name).is_symlink()]
        inner[:] = [name for name in inner if name != _CACHE and name not in links]
        for name in (*links, *files):
            within = str((at / name).relative_to(listing.folder))
            if within not in sent:
                return within
    return None


def _remove_code(project: Path, wanted: list[Path], records: Callable[[], _Named]) -> list[Path]:
    """Remove folders of a project that no run needs, unless a submission is under way."""
    removed: list[Path] = []
    aside: list[Path] = []
    with alone(project) as is_alone:
        if not is_alone:
            return []
        # Read under the lock: all runs that use the code are recorded by now, and none can begin.
        named = records()
        for path in _earlier(project):
            listing = listing_of(path) if path in wanted and path not in named else None
            if listing is None or _not_sent(listing) is not None:
                continue
            aside.append(path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}.partial"))
            path.rename(aside[-1])  # if this is interrupted, a later transfer removes the rest
            list_path(path).unlink()
            removed.append(path)
    for path in aside:
        empty(path)
    return removed


# castoffs


def _castoffs(environ: Mapping[str, str]) -> list[Path]:
    """The castoffs next to this one that nobody calls; empty unless `castoff on install` made this one."""
    own = Path(sys.prefix).resolve()
    if not VERSION.fullmatch(own.name):
        return []
    home = own.parent
    kept = {(home / "current").resolve(), own}
    old = []
    for place in _folders(home):
        if place.is_symlink() or place.resolve() in kept or not VERSION.fullmatch(place.name):
            continue
        try:
            if time.time() - (place / "complete").lstat().st_mtime > _UNUSED:
                old.append(place)
        except OSError:
            continue
    if old and any(row.summary.state != "ended" for row in Overview.asked(Index.of(environ)).rows):
        return []
    return old
