"""The code of a submission, on the laptop: list its files, name its folder, ask for agreement, send."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.messages import CHUNK, Code, File
from castoff.launcher.runs import provenance
from castoff.launcher.runs.records import decode
from castoff.launcher.runs.snapshot import Names, Tree, files_words, left_out_words, tree_around
from castoff.launcher.text.words import size_words

if TYPE_CHECKING:
    from castoff.launcher.config.job_fields import Snapshot

UNASKED = 64 << 20
"""Limit in bytes for code of a repository, or of a folder agreed to before, that is sent without asking.
"""

_LISTED = 20
"""Limit of the names shown when the user is asked whether code may be sent."""

_PROGRESS_PAUSE = 10.0
"""Seconds between two progress reports of a transfer."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


class Travelling(NamedTuple):
    """The code that a job is submitted with, ready to be sent."""

    tree: Tree
    code: Code

    @property
    def words(self) -> str:
        """The size of the code: `214 files, 1.2 MiB`."""
        return f"{files_words(len(self.code.files))}, {size_words(self.tree.bytes)}"

    @property
    def left_out_words(self) -> str:
        """The parts of the folder that are not sent, such as `; not in it: data/`; empty if all parts are
        sent.
        """
        left_out, withheld = Names(), Names()
        left_out.add(*self.tree.left_out)
        withheld.add(*self.tree.withheld)
        return left_out_words(left_out, withheld)


def travelling(
    directory: Path, asked: Snapshot, environ: Mapping[str, str], secrets: list[str]
) -> Travelling:
    """List the files of the project that a folder belongs to. `secrets`: names of variables whose values must
    not appear in records.

    Raises:
        CastoffError: there is too much code, or a file cannot be read.
    """
    from tempfile import TemporaryDirectory

    if asked.link:
        raise CastoffError(
            f"snapshot.link: {asked.link[0]}: links to data on this machine, which the other machine "
            "does not have: copy it there once, and name its path in the job"
        )
    tree = tree_around(directory, asked, environ)
    files = [_file(tree.top, name, about) for name, about in sorted(tree.files.items())]
    with TemporaryDirectory(prefix="castoff-") as folder:
        provenance.record(Path(folder), directory, environ, secrets=secrets)
        about = Path(folder, "code.json").read_bytes()
        has_diff = Path(folder, "code.diff").exists()
        diff = Path(folder, "code.diff").read_bytes() if has_diff else None
    project = _UNSAFE.sub("_", tree.top.name)[:60].lstrip(".-") or "code"
    name, here = _name(about, files, asked), os.fsencode(tree.here)
    return Travelling(tree, Code(project, name, files, here, about, diff))


def _name(about: bytes, files: list[File], asked: Snapshot) -> str:
    """Return a name for the code's folder: the commit, and a digest of all files if they differ from it."""
    code = decode(about, provenance.Code) or provenance.Code()
    digest = hashlib.sha256(msgspec.msgpack.encode(files)).hexdigest()[:10]
    if code.commit is None:
        return f"files-{digest}"
    is_commit = not (code.changed.count or code.untracked.count or code.incomplete or asked.paths)
    return code.commit[:10] if is_commit else f"{code.commit[:10]}-{digest}"


def _file(top: Path, name: str, about: os.stat_result) -> File:
    path, raw = top / name, os.fsencode(name)
    try:
        if stat.S_ISLNK(about.st_mode):
            return File(raw, 0, 0, b"", _target(top, path))
        digest = hashlib.sha256()
        size = 0
        with path.open("rb") as file:
            while part := file.read(CHUNK):
                digest.update(part)
                size += len(part)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
    return File(raw, stat.S_IMODE(about.st_mode) & 0o777, size, digest.digest())


def _target(top: Path, link: Path) -> bytes:
    """The target that a link gets in the copy: a relative one if the link points into the code by an absolute
    path.
    """
    target = os.readlink(link)  # noqa: PTH115 - Path.readlink would normalize it
    if target.startswith("/"):
        inside = os.path.relpath(os.path.normpath(target), top)
        if inside.split("/")[0] != "..":
            target = os.path.relpath(inside, os.path.relpath(link.parent, top))
    return os.fsencode(target)


# Agreement: git tells code from other files; without a repository, everything in the folder would be sent


def needs_agreement(code: Travelling, agreed: int | None, *, selected: bool) -> str | None:
    """The reason why the user must agree before code is sent; None if no agreement is needed.

    `agreed`: the bytes of this folder that the user has agreed to send before; None: never asked. `selected`:
    whether the job lists the paths of its code.
    """
    if agreed is None and not code.tree.in_git and not selected:
        top = printable(str(code.tree.top))
        return f"{top} is not in a git repository, so all its files would be sent"
    if code.tree.bytes > max(UNASKED, 2 * (agreed or 0)):
        return f"{size_words(code.tree.bytes)} is a lot for code"
    return None


def top_level_words(code: Travelling) -> list[str]:
    """Lines with the code's top-level names and their sizes, the largest first."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, about in code.tree.files.items():
        first, slash, _ = name.partition("/")
        sizes[first + slash] += about.st_size
        counts[first + slash] += 1
    lines = []
    for name, bytes_ in sizes.most_common(_LISTED):
        count = f", {files_words(counts[name])}" if name.endswith("/") else ""
        lines.append(f"  {printable(name)} ({size_words(bytes_)}{count})")
    more = len(sizes) - len(lines)
    return [*lines, *([f"  and {more} more"] if more else [])]


# Sending


def to_send_words(code: Travelling, numbers: list[int]) -> str:
    """The amount of code to send: `code: 214 files, 1.2 MiB; 3 files, 12 KiB, to send`."""
    if not numbers:
        return f"code: {code.words}; the machine has all of it already{code.left_out_words}"
    to_send = size_words(sum(code.code.files[number].size for number in numbers))
    return f"code: {code.words}; {files_words(len(numbers))}, {to_send}, to send{code.left_out_words}"


def contents(code: Travelling, numbers: list[int], say: Callable[[str], object]) -> Iterator[bytes]:
    """Yield the contents of files in parts, one file after the other, and report progress to `say`.

    Raises:
        CastoffError: a file has changed since it was listed, or cannot be read any more.
    """
    total = sum(code.code.files[number].size for number in numbers)
    sent, reported = 0, time.monotonic()
    for number in numbers:
        for part in _content(code, code.code.files[number]):
            yield part
            sent += len(part)
            if time.monotonic() - reported >= _PROGRESS_PAUSE:
                reported = time.monotonic()
                say(f"code: {size_words(sent)} of {size_words(total)} sent")


def _content(code: Travelling, listed: File) -> Iterator[bytes]:
    path = code.tree.top / os.fsdecode(listed.name)
    digest, left = hashlib.sha256(), listed.size
    try:
        with path.open("rb") as file:
            while part := file.read(min(CHUNK, left)):
                digest.update(part)
                left -= len(part)
                yield part
            has_grown = bool(file.read(1))
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
    if left or has_grown or digest.digest() != listed.digest:
        raise CastoffError(
            f"{printable(str(path))}: changed while it was sent, so nothing was submitted; call the command "
            "again"
        )
