"""A copy of the code in the run directory, so that a job that waits runs what was submitted.

RUN/code/          the tree: the whole repository, or outside of git the folder of the submission
RUN/code.workdir   a link to the folder in it from which the job was submitted; the script goes there

Files are copied as they are on disk. A hard link would let later edits show through.
"""

from __future__ import annotations

import itertools
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from launcher.config.quantities import size, size_words
from launcher.errors import CastoffError
from launcher.runs.git import GitError
from launcher.runs.worktree import (
    Names,
    Secrets,
    Worktree,
    files_words,
    is_secret,
    own_folders,
    parents,
    shown,
)

if TYPE_CHECKING:
    from launcher.config.job import Snapshot

MAX_FILES = 20_000

_SURVEY = 5 * MAX_FILES
"""Of what is far too much, no more than so many files are looked at."""

_LOOKED_INTO = 2**20
"""Bytes of a file in which a secret is looked for."""

PATIENCE = 120.0
"""Seconds that git may take to list the files."""

_CACHES = frozenset(
    ("__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis")
)
"""Folders that nobody misses."""

_NOT_CODE = _CACHES | frozenset((".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".tox", ".nox"))
"""Folders that are left out where there is no git to say so."""


class Taken(msgspec.Struct):
    """What a snapshot holds, for the record."""

    files: int
    bytes: int
    left_out: Names
    """What git ignores, or where there is no git the folders of tools; and of what git does not know, what
    may hold a secret. Whole folders end in `/`."""
    links: dict[str, str]
    """Links that lead out of the snapshot, and where to."""

    def words(self) -> str:
        """In one line: `214 files, 1.2 MiB; not in it: data/, venv/`."""
        held = f"{files_words(self.files)}, {size_words(self.bytes)}"
        if not self.left_out.count:
            return held
        more = self.left_out.count - 5
        named = ", ".join(map(shown, self.left_out.first[:5])) + (f" and {more} more" if more > 0 else "")
        return f"{held}; not in it: {named}"


class _Entry(NamedTuple):
    """A file or a link of the tree."""

    name: str
    about: os.stat_result
    known: bool
    """Whether git knows it, or the job names it."""

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.about.st_mode)


class _Tree(NamedTuple):
    """What there is to copy. Names count from `top`, the submission's folder is `here`."""

    top: Path
    here: str
    entries: Iterator[_Entry]
    left_out: list[str]
    """Complete when all entries were looked at."""


def take(
    run_path: Path,
    directory: Path,
    asked: Snapshot,
    environ: Mapping[str, str],
    secrets: Secrets | None = None,
) -> Taken:
    """Copy the code around `directory` into a run directory, but no `secrets` that git does not know.

    Raises:
        CastoffError: there is too much of it, or it cannot be read, or what is named is not there.
        OSError: the run directory cannot be written.
    """
    directory = Path(os.path.realpath(directory))
    try:
        tree = _tree(run_path, directory, asked.paths, environ)
        linked = {_link_name(tree, directory, wish): wish for wish in asked.link}
        wanted = (
            entry for entry in _without_secret_names(tree) if linked.keys().isdisjoint(parents(entry.name))
        )
        entries = list(itertools.islice(wanted, _SURVEY))
    except GitError as error:
        message = f"snapshot: {directory}: git does not tell which files are code: {error}"
        raise CastoffError(message) from error
    except OSError as error:
        raise CastoffError(f"snapshot: {error.filename}: cannot be read: {error.strerror}") from error
    _check_size(tree.top, entries, asked)
    entries = list(_without_secrets(tree, entries, secrets or Secrets()))
    code = run_path / "code"
    code.mkdir(mode=0o700)
    (code / tree.here).mkdir(parents=True, exist_ok=True)
    leading_out = _copy(tree.top, code, entries)
    for name, wish in linked.items():
        leading_out[name] = _link(tree.top, code, name, wish)
    (run_path / "code.workdir").symlink_to(Path("code", tree.here))
    left_out = (name for name in tree.left_out if linked.keys().isdisjoint(parents(name)))
    return Taken(
        files=len(entries),
        bytes=sum(entry.about.st_size for entry in entries),
        left_out=Names.of(sorted(left_out)),
        links=leading_out,
    )


# Which files


def _tree(run_path: Path, directory: Path, paths: list[str], environ: Mapping[str, str]) -> _Tree:
    try:
        git = Worktree.around(directory, run_path, time.monotonic() + PATIENCE, environ)
    except GitError:
        if any(os.path.lexists(folder / ".git") for folder in (directory, *directory.parents)):
            raise
        return _tree_on_disk(run_path, directory, paths)
    wanted = _wanted(git.top, directory, paths)
    tracked, untracked = git.tracked(wanted), git.untracked(wanted)
    found = {parent for name in (*tracked, *untracked) for parent in parents(name)} if wanted else set()
    for name in wanted:
        if name not in found:
            raise CastoffError(
                f"snapshot.paths: {git.top / name}: there is nothing that git does not ignore; "
                "what it ignores can be linked (snapshot.link)"
            )
    left_out = [name for name in git.ignored(wanted) if Path(name).name not in _CACHES]
    known, new = _entries(git, tracked, known=True), _entries(git, untracked, known=False)
    entries = (
        entry._replace(known=entry.known or entry.name in wanted) for entry in itertools.chain(known, new)
    )
    return _Tree(git.top, os.path.relpath(directory, git.top), entries, left_out)


def _without_secret_names(tree: _Tree) -> Iterator[_Entry]:
    for entry in tree.entries:
        if entry.known or not is_secret(entry.name):
            yield entry
        else:
            tree.left_out.append(entry.name)


def _without_secrets(tree: _Tree, entries: Iterable[_Entry], secrets: Secrets) -> Iterator[_Entry]:
    """The entries in which none stands; what is as long as data is not looked into."""
    for entry in entries:
        if entry.known or entry.is_link or entry.about.st_size > _LOOKED_INTO:
            yield entry
        elif secrets.are_in(_content(tree.top / entry.name)):
            tree.left_out.append(entry.name)
        else:
            yield entry


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CastoffError(f"snapshot: {path}: cannot be read: {error.strerror}") from error


def _entries(git: Worktree, names: Iterable[str], prefix: str = "", *, known: bool) -> Iterator[_Entry]:
    """Files and links of a working tree, those of repositories in it included."""
    real = {"": True}
    for name in names:
        if not _is_real_folder(git.top, name.rstrip("/").rpartition("/")[0], real):
            continue  # a link took the place of a folder that git knows
        try:
            about = os.lstat(git.top / name)
        except (FileNotFoundError, NotADirectoryError):
            continue  # git knows it, but it is gone
        if stat.S_ISDIR(about.st_mode):
            inner = git.within(name)
            if inner is not None:
                here = f"{prefix}{name.rstrip('/')}/"
                yield from _entries(inner, inner.tracked(), here, known=True)
                yield from _entries(inner, inner.untracked(), here, known=False)
        elif stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
            yield _Entry(prefix + name, about, known)


def _is_real_folder(top: Path, name: str, known: dict[str, bool]) -> bool:
    """Whether a folder is reached without a link."""
    if name not in known:
        known[name] = _is_real_folder(top, name.rpartition("/")[0], known) and not (top / name).is_symlink()
    return known[name]


def _tree_on_disk(run_path: Path, directory: Path, paths: list[str]) -> _Tree:
    """The folder itself, where there is no git to say which files are code."""
    wanted = _wanted(directory, directory, paths)
    for name in wanted:
        if not os.path.lexists(directory / name):
            raise CastoffError(f"snapshot.paths: {directory / name}: there is no such file or folder")
    left_out: list[str] = []
    runs = own_folders(directory, run_path)
    entries = (entry for name in wanted or ["."] for entry in _on_disk(directory, name, runs, left_out))
    return _Tree(directory, ".", entries, left_out)


def _on_disk(top: Path, name: str, runs: list[str], left_out: list[str]) -> Iterator[_Entry]:
    """Files and links of a folder, or a file; folders that are no code are added to `left_out`."""
    about = os.lstat(top / name)
    if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
        yield _Entry(name, about, known=True)
        return
    for folder, folders, files in os.walk(top / name, onerror=_raise):
        prefix = os.path.relpath(folder, top) + "/"
        prefix = "" if prefix == "./" else prefix
        if prefix and "job.sh" in files and "attempts" in folders:  # a run
            folders.clear()
            continue
        for one in sorted([*folders, *files]):
            about = os.lstat(f"{folder}/{one}")
            if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
                yield _Entry(prefix + one, about, known=False)
            elif stat.S_ISDIR(about.st_mode) and (prefix + one in runs or _is_no_code(Path(folder, one))):
                folders.remove(one)
                if one not in _CACHES and prefix + one not in runs:
                    left_out.append(f"{prefix}{one}/")


def _is_no_code(folder: Path) -> bool:
    return folder.name in _NOT_CODE or is_secret(folder.name) or os.path.lexists(folder / "pyvenv.cfg")


def _raise(error: OSError) -> None:
    raise error


def _wanted(top: Path, directory: Path, paths: list[str]) -> list[str]:
    """The names of `paths`, none of them inside another; empty for all."""
    names = dict.fromkeys(_within(top, directory, path, "paths") for path in paths)
    if "." in names:
        return []
    return [name for name in names if names.keys().isdisjoint(parents(name)[:-1])]


def _within(top: Path, directory: Path, wish: str, field: str) -> str:
    """The name of what counts from the submission's folder."""
    name = os.path.relpath(os.path.normpath(directory / wish), top)
    if name.split("/")[0] == "..":
        raise CastoffError(
            f"snapshot.{field}: {wish}: is not in {top}, which is what the snapshot is taken of"
        )
    return name


def _link_name(tree: _Tree, directory: Path, wish: str) -> str:
    name = _within(tree.top, directory, wish, "link")
    if name in (".", *parents(tree.here)):
        raise CastoffError(f"snapshot.link: {wish}: the job runs in there; it cannot be the original too")
    if not os.path.lexists(tree.top / name):
        raise CastoffError(f"snapshot.link: {wish}: {tree.top / name} is not there")
    return name


def _check_size(top: Path, entries: list[_Entry], asked: Snapshot) -> None:
    total = sum(entry.about.st_size for entry in entries)
    if len(entries) <= MAX_FILES and total <= size(asked.limit):
        return
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in entries:
        first, slash, _ = entry.name.partition("/")
        counts[first + slash] += 1
        sizes[first + slash] += entry.about.st_size
    by = counts if len(entries) > MAX_FILES else sizes
    largest = ", ".join(
        f"{shown(name)} ({files_words(counts[name])}, {size_words(sizes[name])})"
        for name, _ in by.most_common(5)
    )
    least = "at least " if len(entries) == _SURVEY else ""
    raise CastoffError(
        f"snapshot: {top} holds {least}{files_words(len(entries))}, {size_words(total)}, and a snapshot "
        f"{MAX_FILES:,} files and {asked.limit} at the most\n"
        f"the largest in it: {largest}\n"
        "let .gitignore name what is no code, or the job what is: snapshot: {paths: [src]}; "
        "snapshot: {limit: 2G} allows for larger files"
    )


# Copying


def _copy(top: Path, code: Path, entries: list[_Entry]) -> dict[str, str]:
    """Copy files, then links; the links that lead out of the snapshot, and where to."""
    for entry in entries:
        if not entry.is_link:
            _copy_file(top / entry.name, _place(code, entry.name), entry.about)
    leading_out = {}
    for entry in entries:
        if entry.is_link and (target := _copy_link(top, code, entry.name)):
            leading_out[entry.name] = target
    return leading_out


def _copy_file(source: Path, target: Path, about: os.stat_result) -> None:
    import shutil

    try:
        shutil.copyfile(source, target)
    except OSError as error:
        if error.filename == str(source) and error.filename2 is None:  # else it is about the target
            raise CastoffError(f"snapshot: {source}: cannot be read: {error.strerror}") from error
        raise
    target.chmod(stat.S_IMODE(about.st_mode) & 0o777)
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def _copy_link(top: Path, code: Path, name: str) -> str | None:
    """Copy a link so that it leads to the copy of what it led to, or to the original if there is no copy.

    Returns where it leads to in the second case.
    """
    text = str((top / name).readlink())
    target = Path(os.path.realpath(top / name))
    inside = os.path.relpath(target, top)
    place = _place(code, name)
    if inside.split("/")[0] != ".." and os.path.lexists(code / inside):
        lexically = os.path.normpath(Path(name).parent / text)  # absolute, if the text is
        if lexically.startswith(("/", "..")):
            text = os.path.relpath(code / inside, place.parent)
        place.symlink_to(text)
        return None
    if not target.exists():  # it leads nowhere, and may be meant to
        place.symlink_to(text)
        return None
    place.symlink_to(target)
    return str(target)


def _link(top: Path, code: Path, name: str, wish: str) -> str:
    """Put a link to the original where a copy would be; where it leads to."""
    folder = code
    for word in name.split("/")[:-1]:
        folder /= word
        if folder.is_symlink():
            raise CastoffError(
                f"snapshot.link: {wish}: {folder.relative_to(code)} leads to the original already"
            )
    target = os.path.realpath(top / name)
    _place(code, name).symlink_to(target)
    return target


def _place(code: Path, name: str) -> Path:
    """Where a file goes; its folder is there then."""
    place = code / name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
