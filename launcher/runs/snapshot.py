"""A copy of the code in the run directory, so that a job that waits runs what was submitted.

RUN/code/          the tree: the whole repository, or outside of git the folder of the submission
RUN/code.workdir   a link to the folder in it from which the job was submitted; the script goes there

What is code, git says: what it knows, and what it does not ignore. Files are copied as they are on disk. A
hard link would let later edits show through.
"""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from launcher.config.quantities import size, size_words
from launcher.errors import CastoffError, printable
from launcher.runs.git import Git, GitError

if TYPE_CHECKING:
    from launcher.config.job_fields import Snapshot

MAX_FILES = 20_000

PATIENCE = 120.0
"""Seconds that git may take to list the files."""

_IGNORED = ("--exclude-standard", "--exclude=__pycache__", "--exclude=.venv", "--exclude=venv")
"""What git does not track and these name is not code."""

_NAMED = 100


class Names(msgspec.Struct):
    """A list of files for a record. It may be long: all are counted, and the first are named."""

    count: int = 0
    first: list[str] = []

    def add(self, *names: str) -> None:
        """Some more."""
        self.count += len(names)
        self.first = [*self.first, *names][:_NAMED]


class Taken(msgspec.Struct):
    """What a snapshot holds, for the record."""

    files: int
    bytes: int
    left_out: Names
    """What git ignores. Whole folders end in `/`."""

    def words(self) -> str:
        """In one line: `214 files, 1.2 MiB; not in it: data/, venv/`."""
        named = [printable(name) for name in self.left_out.first[:5]]
        more = self.left_out.count - len(named)
        without = f"; not in it: {', '.join(named)}" + (f" and {more} more" if more else "")
        return f"{files_words(self.files)}, {size_words(self.bytes)}{without if named else ''}"


class Tree(NamedTuple):
    """Which files are code, around a folder."""

    top: Path
    """The top folder of the repository; outside of git the folder itself."""
    here: str
    """The folder, relative to the top."""
    files: dict[str, os.stat_result]
    """Files and links, by their names relative to the top."""
    links: dict[str, str]
    """What is to be a link to its original, and the originals."""
    left_out: list[str]
    """What git ignores. Whole folders end in `/`."""

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum(about.st_size for about in self.files.values())


def tree_around(directory: Path, asked: Snapshot, environ: Mapping[str, str]) -> Tree:
    """The code around a folder.

    Raises:
        CastoffError: there is too much of it, or it cannot be read, or what is named is not there.
    """
    from tempfile import TemporaryDirectory

    directory = Path(os.path.realpath(directory))
    with TemporaryDirectory(prefix="castoff-") as scratch:
        try:
            git = _git(directory, environ, scratch)
            top = git.folder
            paths = [os.path.relpath(os.path.normpath(directory / path), top) for path in asked.paths]
            links = _links(top, directory, asked.link)
            found, ignored = _files(git, paths, asked.limit), _ignored(git, paths)
        except GitError as error:
            raise CastoffError(f"snapshot: {directory}: git reports: {error}") from error
        except OSError as error:
            raise CastoffError(f"snapshot: {error.filename}: cannot be read: {error.strerror}") from error
    files = {name: about for name, about in found.items() if not _within(name, links)}
    _check_size(top, {name: about.st_size for name, about in files.items()}, asked.limit)
    left_out = sorted(name for name in ignored if not _within(name, links))
    return Tree(top, os.path.relpath(directory, top), files, links, left_out)


def take(run_path: Path, directory: Path, asked: Snapshot, environ: Mapping[str, str]) -> Taken:
    """Copy the code around `directory` into a run directory.

    Raises:
        CastoffError: there is too much of it, or it cannot be read, or what is named is not there.
        OSError: the run directory cannot be written.
    """
    tree = tree_around(directory, asked, environ)
    code = run_path / "code"
    (code / tree.here).mkdir(parents=True)
    for name in sorted(tree.files, key=lambda name: stat.S_ISLNK(tree.files[name].st_mode)):
        _copy(tree.top, code, name)
    for name, target in tree.links.items():
        folder = os.path.dirname(name)  # noqa: PTH120 - which is empty at the top
        if os.path.realpath(code / folder) != os.path.normpath(os.path.realpath(code) + "/" + folder):
            raise CastoffError(f"snapshot.link: {name}: lies in what leads to the original already")
        _place(code, name).symlink_to(target)
    (run_path / "code.workdir").symlink_to(Path("code", tree.here))
    taken = Taken(len(tree.files), tree.bytes, Names())
    taken.left_out.add(*tree.left_out)
    return taken


def files_words(count: int) -> str:
    """How many files, for people."""
    return "1 file" if count == 1 else f"{count:,} files"


# Which files


def _git(directory: Path, environ: Mapping[str, str], scratch: str) -> Git:
    """git in the top folder around `directory`, which it takes for an empty repository if it is in none."""
    git = Git(directory, time.monotonic() + PATIENCE, environ)
    try:
        return git.top()
    except GitError:
        if any(os.path.lexists(folder / ".git") for folder in (directory, *directory.parents)):
            raise
    git.answer("init", "--quiet", "--template=", scratch)
    return git.at(directory, GIT_DIR=f"{scratch}/.git", GIT_WORK_TREE=str(directory))


def _files(git: Git, paths: list[str], limit: str, prefix: str = "") -> dict[str, os.stat_result]:
    """The files and links to be copied of a tree, and of the repositories within: `prefix` leads to one."""
    words = ["ls-files", "-z", "--cached", "--others", *_IGNORED, "--error-unmatch", "--"]
    names = dict.fromkeys(git.names(*words, *paths))
    _check_size(git.folder, dict.fromkeys(names, 0), limit)
    found: dict[str, os.stat_result] = {}
    for name in names:
        path = git.folder / name
        if not os.path.lexists(path):  # git knows it, but it is gone
            continue
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
            found[prefix + name] = about
        elif os.path.lexists(path / ".git"):
            found |= _files(git.at(path), [], limit, f"{prefix}{name.rstrip('/')}/")
    # A link may have taken the place of a folder that git knows.
    links = {name for name, about in found.items() if stat.S_ISLNK(about.st_mode)}
    return {name: found[name] for name in found if not _within(str(Path(name).parent), links)}


def _ignored(git: Git, paths: list[str]) -> list[str]:
    """What git ignores, a whole folder as `x/`; but for folders that ignore themselves, as runs do."""
    words = ["ls-files", "-z", "--others", "--ignored", *_IGNORED, "--directory", "--"]
    names = git.names(*words, *paths)
    own = {name.rpartition("/")[0] for name in names if name.endswith(("/.gitignore", "__pycache__/"))}
    around = {parent for name in own for parent in _parents(name)}
    return [name for name in names if name[:-1] not in around and not _within(name, own)]


def _within(name: str, folders: Container[str]) -> bool:
    """Whether a name is one of these, or lies in one."""
    return any(parent in folders for parent in _parents(name))


def _parents(name: str) -> list[str]:
    return [str(path) for path in (Path(name), *Path(name).parents)]


def _links(top: Path, directory: Path, wishes: list[str]) -> dict[str, str]:
    """The names that are to be links, and the originals."""
    links: dict[str, str] = {}
    for wish in wishes:
        name = os.path.relpath(os.path.normpath(directory / wish), top)
        if f"{os.path.relpath(directory, top)}/".startswith(f"{name}/") or name.split("/")[0] in (".", ".."):
            raise CastoffError(f"snapshot.link: {wish}: is not below {top}, or the job runs in there")
        if not os.path.lexists(top / name):
            raise CastoffError(f"snapshot.link: {wish}: {top / name} is not there")
        links[name] = os.path.realpath(top / name)
    return links


def _check_size(top: Path, sizes: Mapping[str, int], limit: str) -> None:
    total, many = sum(sizes.values()), len(sizes) > MAX_FILES
    if not many and total <= size(limit):
        return
    weights: Counter[str] = Counter()
    for name, bytes_ in sizes.items():
        first, slash, _ = name.partition("/")
        weights[first + slash] += 1 if many else bytes_
    words = files_words if many else size_words
    largest = ", ".join(f"{printable(name)} ({words(weight)})" for name, weight in weights.most_common(5))
    raise CastoffError(
        f"snapshot: {top} holds {files_words(len(sizes))}{'' if many else f', {size_words(total)}'}, and a "
        f"snapshot {MAX_FILES:,} files and {limit} at the most\n"
        f"the largest in it: {largest}\n"
        "list in .gitignore what is not code, or in the job what is: snapshot: {paths: [src]}; "
        "snapshot: {limit: 2G} allows for larger files"
    )


# Copying


def _copy(top: Path, code: Path, name: str) -> None:
    """Copy a file; a link leads to the copy of what it led to, or to the original where there is no copy."""
    from shutil import copy2

    source, place = top / name, _place(code, name)
    if source.is_symlink():
        target = os.path.realpath(source)
        inside = os.path.relpath(target, top)
        if inside.split("/")[0] != ".." and os.path.lexists(code / inside):
            target = os.path.relpath(code / inside, place.parent)
        place.symlink_to(target)
        return
    try:
        copy2(source, place)
    except OSError as error:
        if error.filename == str(source) and error.filename2 is None:  # else it is about the copy
            raise CastoffError(f"snapshot: {source}: cannot be read: {error.strerror}") from error
        raise


def _place(code: Path, name: str) -> Path:
    """Where a file goes; its folder is there then."""
    place = code / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
