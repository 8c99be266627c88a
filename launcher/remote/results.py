"""The results of a run, on its machine: which files they are, and their contents for `castoff pull`.

Without patterns they are the files of the run directory. A pattern is looked for there, and, if it matches
nothing there, in the job's working directory, whose files get names below `workdir/`. Links are followed only
if a pattern names them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from castoff.launcher.config.references import filled
from castoff.launcher.config.workdir import as_path
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote.messages import (
    CHUNK,
    MOST_LISTED,
    Files,
    Item,
    LeftOut,
    Listed,
    Part,
    Result,
    Results,
    Unread,
    Whole,
)
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.members import members_selected, numbered
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import read
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.runs.secrets import SECRETS
from castoff.launcher.text.words import size_words

LARGE = 256 << 20
"""Bytes above which a file, such as a checkpoint, is sent only if a pattern names it."""

_NEVER = frozenset({SECRETS, LOCK})
"""Files of a run directory that are never sent."""

WORKDIR = "workdir"
"""The folder on the laptop of files from the job's working directory."""

LARGER = "is larger than " + size_words(LARGE)

_CODE = ("code", "code.workdir")
"""The copy of the code, which the laptop has."""

_MOST_FILES = 200_000
_MOST_LEFT_OUT = 10_000

_OF_MEMBER = re.compile(r"(?:logs|attempts)/(\d+)\.\d+/|logs/job-(\d+)\.log$|functions/(\d+)\.pkl$")


class _Found(NamedTuple):
    """A file of a run, and how it is listed."""

    path: Path
    listed: Result


class Sender:
    """Lists the results of runs, and sends those that were listed last."""

    def __init__(self) -> None:
        self._found: list[list[_Found]] = []

    def find(
        self, reference: str, selectors: Sequence[str], patterns: Sequence[str], environ: Mapping[str, str]
    ) -> Iterator[Listed | Files]:
        """List the results of a run, or of all runs of a group; without a reference, of the newest run.

        Raises:
            CastoffError: there is no such run or member, a pattern is invalid, or there are too many files.
        """
        for pattern in patterns:
            _check(pattern)
        index = Index.of(environ)
        group = index.group(reference) if reference else None
        reference, members = (reference, []) if group else numbered(index, reference)
        if group and selectors:
            raise CastoffError(
                f"{selectors[0]}: selects members of one run, and {reference} is a group of runs"
            )
        runs = group.runs if group else [index.find(reference)]
        chosen = frozenset[int]() if group else members_selected(runs[0], selectors, members)
        searches = [_Search(run, chosen) for run in runs]
        unmatched = [search.find(patterns) for search in searches]
        left_out = sum(len(search.left_out) for search in searches)
        if sum(len(search.found) for search in searches) > _MOST_FILES or left_out > _MOST_LEFT_OUT:
            raise CastoffError(
                f"{reference}: too many files (at most {_MOST_FILES:,}, and {_MOST_LEFT_OUT:,} that are left "
                f"out); name fewer, as in castoff pull {reference} 'logs/**'"
            )
        self._found = [[search.found[name] for name in sorted(search.found)] for search in searches]
        results = [
            Results(search.run.id, len(found), search.left_out, missing)
            for search, found, missing in zip(searches, self._found, unmatched, strict=True)
        ]
        yield Listed(group.id if group else runs[0].id, group is not None, results)
        for found in self._found:
            for begin in range(0, len(found), MOST_LISTED):
                yield Files([one.listed for one in found[begin : begin + MOST_LISTED]])

    def send(self, items: Sequence[Item]) -> Iterator[Part | Whole | Unread]:
        """Send files, one after the other."""
        for item in items:
            try:
                path, listed = self._found[item.run][item.number]
                if min(item.run, item.number) < 0:
                    raise IndexError
            except IndexError:
                raise CastoffError("castoff: a file was asked for that is not in the list") from None
            try:
                yield from _contents(path, listed.size, item)
            except OSError as error:
                yield Unread(error.strerror or str(error))


class _Search:
    """Finds files of one run."""

    def __init__(self, run: RunDirectory, members: frozenset[int]):
        """`members`: those whose files are meant; empty: all."""
        self.run = run
        self.found: dict[bytes, _Found] = {}
        self.left_out: list[LeftOut] = []
        self._members = members

    def find(self, patterns: Sequence[str]) -> list[str]:
        """Find the files, and return the patterns that match none."""
        if not patterns:
            for path in self._below(self.run.path, self.run.path, ""):
                self._take(path, self.run.path, "", limit=LARGE)
        return [pattern for pattern in patterns if not self._find(pattern)]

    def _find(self, pattern: str) -> bool:
        if self._match(pattern, self.run.path, ""):
            return True
        places = self._working_directories()
        matched = [self._match(pattern, folder, name) for name, folder in places.items()]
        return any(matched)

    def _match(self, pattern: str, folder: Path, name_there: str) -> bool:
        """Take the files that match in a folder, and return whether there are any."""
        matched = False
        try:
            for match in folder.glob(pattern):
                for path in self._below(match, folder, name_there) if match.is_dir() else [match]:
                    matched = self._take(path, folder, name_there) or matched
        except ValueError as error:
            raise CastoffError(f"{pattern}: {error}") from None
        return matched

    def _working_directories(self) -> dict[str, Path]:
        """The folders in which the job's program started, by the names of their copies on the laptop."""
        record, plan = self.run.submission(), read(self.run.path / "plan.json", Plan)
        snapshot = self.run.path / "code.workdir"
        if snapshot.is_dir():
            start = snapshot
        elif record is not None and record.directory:
            start = Path(record.directory)
        else:
            return {}
        if plan is None or plan.workdir is None:
            return {WORKDIR: start}
        values = parameters_of(self.run)
        members = sorted(self._members) or self.run.facts().members
        folders = {member: start / as_path(filled(plan.workdir, values.values(member))) for member in members}
        if len({*folders.values()}) == 1:
            return {WORKDIR: folders[members[0]]}
        return {f"{WORKDIR}-{member}": folder for member, folder in folders.items()}

    def _below(self, folder: Path, top: Path, name_there: str) -> Iterator[Path]:
        """The files below a folder. Links in it are left out."""
        for path, inner, names in os.walk(folder):
            here = Path(path)
            if here == self.run.path and not name_there:
                inner[:] = [name for name in inner if name not in _CODE]
            links = [name for name in inner if (here / name).is_symlink()]
            for name in sorted([*links, *names]):
                if not (here / name).is_symlink():
                    yield here / name
                elif name not in _CODE:
                    within = PurePosixPath(name_there, (here / name).relative_to(top).as_posix())
                    self.left_out.append(LeftOut(os.fsencode(within), 0, "is a link"))

    def _take(self, path: Path, folder: Path, name_there: str, limit: int | None = None) -> bool:
        """Add a file to those that were found; return whether it is one of the run's results."""
        name = path.relative_to(folder).as_posix()
        if not name_there and (name in _NEVER or not self._is_meant(name)):
            return False
        try:
            about = path.stat()
        except OSError:  # removed meanwhile, or a link to nothing
            return False
        if not stat.S_ISREG(about.st_mode):
            return False
        there = os.fsencode(PurePosixPath(name_there, name))
        if limit is not None and about.st_size > limit:
            self.left_out.append(LeftOut(there, about.st_size, LARGER))
        else:
            mode = stat.S_IMODE(about.st_mode)
            self.found[there] = _Found(path, Result(there, about.st_size, about.st_mtime_ns, mode))
        return True

    def _is_meant(self, name: str) -> bool:
        """Whether a file of the run directory belongs to a selected member, or to none."""
        match = _OF_MEMBER.match(name)
        return not (self._members and match) or int(next(filter(None, match.groups()))) in self._members


def _check(pattern: str) -> None:
    """Refuse patterns that do not stay in the two folders.

    Raises:
        CastoffError: the pattern is invalid.
    """
    path = PurePosixPath(pattern)
    if path.is_absolute() or pattern.startswith("~"):
        raise CastoffError(
            f"{pattern}: is a path outside; pull fetches files of the run directory and of the job's working "
            "directory, named relative to it; scp copies others"
        )
    if not path.parts or ".." in path.parts or "\0" in pattern:
        raise CastoffError(f"{pattern!r}: is not a pattern for files, as 'logs/**' or 'results/*.csv'")


def _contents(path: Path, listed: int, item: Item) -> Iterator[Part | Whole | Unread]:
    """The content of a file, of at most the size that was listed: a log may grow meanwhile.

    Raises:
        OSError: the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            yield Unread("is no longer a file")
            return
        size, digest, at = min(listed, before.st_size), hashlib.sha256(), 0
        if 0 < item.offset <= size:
            while at < item.offset and (data := file.read(min(CHUNK, item.offset - at))):
                digest.update(data)
                at += len(data)
            if digest.digest() != item.digest:
                digest, at = hashlib.sha256(), file.seek(0)
        while data := file.read(min(CHUNK, size - at)):
            digest.update(data)
            if at + len(data) >= size:
                break
            yield Part(at, data)
            at += len(data)
        yield Whole(at, data, digest.digest(), before.st_mtime_ns)
