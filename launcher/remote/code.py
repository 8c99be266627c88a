"""The code of a submission, as it travels: which files, what they hold, and a name that says which it is."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.remote.frames import CHUNK, Code, File, Part
from castoff.launcher.runs import provenance
from castoff.launcher.runs.records import decode
from castoff.launcher.runs.snapshot import Names, Tree, files_words, left_out_words, tree_around
from castoff.launcher.text.words import size_words

if TYPE_CHECKING:
    from castoff.launcher.config.job_fields import Snapshot

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


class Travelling(NamedTuple):
    """Code that is to be sent."""

    tree: Tree
    code: Code
    about: bytes
    """The run's code.json: commit, branch, what differs."""
    diff: bytes | None
    """The run's code.diff."""

    @property
    def words(self) -> str:
        """How much it is: `214 files, 1.2 MiB`."""
        return f"{files_words(len(self.code.files))}, {size_words(self.tree.bytes)}"

    @property
    def left_out_words(self) -> str:
        """What of the folder does not travel: `; not in it: data/`; empty: all of it does."""
        left_out, withheld = Names(), Names()
        left_out.add(*self.tree.left_out)
        withheld.add(*self.tree.withheld)
        return left_out_words(left_out, withheld)


def travelling(
    directory: Path, asked: Snapshot, environ: Mapping[str, str], secrets: list[str]
) -> Travelling:
    """The code around a folder; `secrets` are names of variables whose values no record may hold.

    Raises:
        CastoffError: there is too much of it, it cannot be read, or it changes meanwhile.
    """
    from tempfile import TemporaryDirectory

    if asked.link:
        raise CastoffError(
            f"snapshot.link: {asked.link[0]}: leads to an original on this machine, which the other does not "
            "have: copy it there once, and name its path in the job"
        )
    tree = tree_around(directory, asked, environ)
    files = [_file(tree.top, name, about) for name, about in sorted(tree.files.items())]
    with TemporaryDirectory(prefix="castoff-") as folder:
        provenance.record(Path(folder), directory, environ, secrets=secrets)
        about = Path(folder, "code.json").read_bytes()
        has_diff = Path(folder, "code.diff").exists()
        diff = Path(folder, "code.diff").read_bytes() if has_diff else None
    project = _UNSAFE.sub("_", tree.top.name)[:60].lstrip(".-") or "code"
    return Travelling(tree, Code(project, _name(about, files, asked), files), about, diff)


def _name(about: bytes, files: list[File], asked: Snapshot) -> str:
    """The name of the code's folder: the commit; a digest of all files too where they are not just that."""
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
    """Where a link leads there: one that names a file of the tree by an absolute path, to its copy."""
    target = os.readlink(link)  # noqa: PTH115 - as it is written
    if target.startswith("/"):
        inside = os.path.relpath(os.path.normpath(target), top)
        if inside.split("/")[0] != "..":
            target = os.path.relpath(inside, os.path.relpath(link.parent, top))
    return os.fsencode(target)


def to_send_words(code: Travelling, numbers: list[int]) -> str:
    """What of it has to be sent: `214 files, 1.2 MiB; 3 changed, 12 KiB to send`."""
    if not numbers:
        return f"code: {code.words}; all of it is there already{code.left_out_words}"
    to_send = size_words(sum(code.code.files[number].size for number in numbers))
    return f"code: {code.words}; {files_words(len(numbers))}, {to_send}, to send{code.left_out_words}"


def parts(
    code: Travelling, numbers: list[int], progress: Callable[[int], object] = lambda sent: None
) -> Iterator[Part]:
    """The contents of these files, one after the other; `progress` is given the bytes sent so far.

    Raises:
        CastoffError: one has changed since it was listed, or cannot be read any more.
    """
    sent = 0
    for number in numbers:
        listed = code.code.files[number]
        path = code.tree.top / os.fsdecode(listed.name)
        digest, left = hashlib.sha256(), listed.size
        try:
            with path.open("rb") as file:
                while True:
                    data = file.read(min(CHUNK, left))
                    digest.update(data)
                    left -= len(data)
                    if not data or left == 0:
                        break
                    yield Part(data, is_last=False)
                    sent += len(data)
                    progress(sent)
                if left or file.read(1) or digest.digest() != listed.digest:
                    raise CastoffError(
                        f"{printable(str(path))}: changed while it was sent, so nothing was submitted; "
                        "call the command again"
                    )
        except OSError as error:
            raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
        yield Part(data, is_last=True)
        sent += len(data)
        progress(sent)


class Progress:
    """Says on standard error how far a transfer is, where it takes long."""

    def __init__(self, total: int, say: Callable[[str], object], *, every: float = 10.0):
        self._total, self._say, self._every = total, say, every
        self._last = time.monotonic()

    def __call__(self, sent: int) -> None:
        """So many bytes have been sent."""
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._say(f"code: {size_words(sent)} of {size_words(self._total)} sent")
