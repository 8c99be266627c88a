"""A copy of the code in the run directory, so that a waiting job runs the code that was submitted.

RUN/code/          the tree: the whole repository, or outside of git the folder of submission
RUN/code.workdir   a link to the folder of submission in it, in which the script starts

Code is what git tracks or does not ignore. Files are copied, since hard links would show later edits.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from castoff.launcher.config.quantities import size
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.runs.git import Git, GitError
from castoff.launcher.runs.pages import is_page
from castoff.launcher.runs.secrets import secret_part
from castoff.launcher.text.words import size_words

if TYPE_CHECKING:
    from castoff.launcher.config.job_fields import Snapshot

MAX_FILES = 20_000

PATIENCE = 120.0
"""Seconds that git may take to list the files."""

_IGNORED = ("--exclude-standard", "--exclude=__pycache__", "--exclude=.venv", "--exclude=venv")
"""Options for git: untracked files with these names are not code."""

_NAMED = 100


class Names(msgspec.Struct):
    """A list of files in a record: the count of all, and the first `_NAMED` names."""

    count: int = 0
    first: list[str] = []

    def add(self, *names: str) -> None:
        """Count these names, and keep the first."""
        self.count += len(names)
        self.first = [*self.first, *names][:_NAMED]


class Taken(msgspec.Struct):
    """The content of a snapshot, for the record."""

    files: int
    bytes: int
    left_out: Names
    """Files that git ignores, and pages that castoff wrote; folders end in `/`."""
    withheld: Names = msgspec.field(default_factory=Names)
    """Untracked files whose names look like secrets."""

    def words(self) -> str:
        """The content in one line: `214 files, 1.2 MiB; not in it: data/, venv/`."""
        size = f"{files_words(self.files)}, {size_words(self.bytes)}"
        return size + left_out_words(self.left_out, self.withheld)


class Tree(NamedTuple):
    """The code files of the project that a folder belongs to."""

    top: Path
    """The top folder of the repository; outside of git the folder itself."""
    here: str
    """The folder's path, relative to `top`."""
    files: dict[str, os.stat_result]
    """Files and links, by their paths relative to `top`."""
    links: dict[str, str]
    """Paths to be copied as links, and the originals to which they lead."""
    left_out: list[str]
    """Files that git ignores, and pages that castoff wrote; folders end in `/`."""
    withheld: list[str]
    """Untracked files whose names look like secrets."""
    in_git: bool

    @property
    def bytes(self) -> int:
        """The total size of all files."""
        return sum(about.st_size for about in self.files.values())


def tree_around(
    directory: Path, snapshot: Snapshot, environ: Mapping[str, str], *, is_code: bool = False
) -> Tree:
    """List the code files of the project that a folder belongs to. `is_code`: all files in it are code.

    Raises:
        CastoffError: the code is too large, cannot be read or is the whole home, or a named path is missing.
    """
    from tempfile import TemporaryDirectory

    directory = Path(os.path.realpath(directory))
    with TemporaryDirectory(prefix="castoff-") as scratch:
        try:
            git, in_git = _git(directory, environ, scratch)
            top = git.folder
            paths = [os.path.relpath(os.path.normpath(directory / path), top) for path in snapshot.paths]
            links = _links(top, directory, snapshot.link)
            _check_no_home([top / path for path in paths] or [top], environ)
            held_back = None if is_code else _HeldBack({}, [])
            present, ignored = _files(git, paths, snapshot.limit, held_back), _ignored(git, paths)
        except GitError as error:
            raise CastoffError(f"snapshot: {directory}: git reports: {error}") from error
        except OSError as error:
            raise CastoffError(f"snapshot: {error.filename}: cannot be read: {error.strerror}") from error
    files = {name: about for name, about in present.items() if not _within(name, links)}
    _check_size(top, {name: about.st_size for name, about in files.items()}, snapshot.limit)
    secret, pages = held_back or _HeldBack({}, [])
    left_out = sorted(name for name in (*ignored, *pages) if not _within(name, links))
    withheld = sorted({shown for name, shown in secret.items() if not _within(name, links)})
    return Tree(top, os.path.relpath(directory, top), files, links, left_out, withheld, in_git)


def take(
    run_path: Path, directory: Path, snapshot: Snapshot, environ: Mapping[str, str], *, is_code: bool = False
) -> Taken:
    """Copy the code of the project that `directory` belongs to into a run directory; `is_code`: see
    `tree_around`.

    Raises:
        CastoffError: the code is too large or cannot be read, or a named path does not exist.
        OSError: the run directory cannot be written.
    """
    tree = tree_around(directory, snapshot, environ, is_code=is_code)
    code = run_path / "code"
    for folder in {tree.here, *map(_folder_of, tree.files)}:
        (code / folder).mkdir(parents=True, exist_ok=True)
    # Links last, since each leads to the copy of its target, if that is copied.
    for name in sorted(tree.files, key=lambda name: stat.S_ISLNK(tree.files[name].st_mode)):
        _copy(f"{tree.top}/{name}", code, name)
    for name, target in tree.links.items():
        folder = _folder_of(name)
        if os.path.realpath(code / folder) != os.path.normpath(os.path.realpath(code) + "/" + folder):
            raise CastoffError(
                f"snapshot.link: {name}: is in a folder that is already a link to the original"
            )
        (code / folder).mkdir(parents=True, exist_ok=True)
        (code / name).symlink_to(target)
    (run_path / "code.workdir").symlink_to(Path("code", tree.here))
    taken = Taken(len(tree.files), tree.bytes, Names())
    taken.left_out.add(*tree.left_out)
    taken.withheld.add(*tree.withheld)
    return taken


def files_words(count: int) -> str:
    """A number of files, in words."""
    return "1 file" if count == 1 else f"{count:,} files"


def left_out_words(left_out: Names, withheld: Names) -> str:
    """The left-out files in words, to follow the description of a snapshot; empty if there are none."""
    words = ""
    for reason, names in (("not in it", left_out), ("left out, as they may hold secrets", withheld)):
        named = [printable(name) for name in names.first[:5]]
        more = names.count - len(named)
        words += f"; {reason}: {', '.join(named)}" * bool(named) + f" and {more} more" * bool(more)
    return words


# Selecting files


def _git(directory: Path, environ: Mapping[str, str], scratch: str) -> tuple[Git, bool]:
    """git in the top folder of the repository of `directory`, and whether there is such a repository."""
    git = Git(directory, time.monotonic() + PATIENCE, environ)
    try:
        return git.top(), True
    except GitError:
        if any(os.path.lexists(folder / ".git") for folder in (directory, *directory.parents)):
            raise
    git.answer("init", "--quiet", "--template=", scratch)
    return git.at(directory, GIT_DIR=f"{scratch}/.git", GIT_WORK_TREE=str(directory)), False


def _check_no_home(roots: list[Path], environ: Mapping[str, str]) -> None:
    """Refuse to copy the user's home or a folder above it.

    Raises:
        CastoffError: one of `roots` is such a folder.
    """
    import pwd

    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # the user has no passwd entry
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    real = [os.path.realpath(home) for home in homes if home.startswith("/")]
    for root in map(os.path.realpath, roots):
        if root == "/" or any(f"{home}/".startswith(f"{root}/") for home in real):
            raise CastoffError(
                f"snapshot: the code would be all of {printable(root)}, "
                f"{'your home' if root in real else 'which is not a project'}: submit from the project's own "
                "folder (if it has no git repository of its own, run `git init` in it), or list in the "
                "job what is code: snapshot: {paths: [src]}"
            )


class _HeldBack(NamedTuple):
    """Files that are not copied, unless git tracks them or the user has named them."""

    secret: dict[str, str]
    """Files that look like secrets, each with the path for messages."""
    pages: list[str]
    """Pages that castoff wrote: each would make the code another one, and may be large."""


def _held_back(git: Git, paths: list[str], names: Iterable[str]) -> _HeldBack:
    """The files to hold back among `names`. A file counts as named if git tracks it or `paths` lists it."""
    secret: dict[str, str] = {}
    pages: list[str] = []
    for name in names:
        named = max((path for path in paths if _within(name, (path,))), key=len, default="")
        inside = os.path.relpath(name, named) if named not in ("", ".") else name
        if inside == ".":
            continue
        if part := secret_part(inside):
            secret[name] = os.path.normpath(f"{named}/{part}").lstrip("/") + "/" * (part != inside)
        elif name.endswith(".html"):
            pages.append(name)
    if not secret and not pages:
        return _HeldBack({}, [])
    tracked = {*git.names("ls-files", "-z", "--cached")}
    return _HeldBack(
        {name: part for name, part in secret.items() if name not in tracked},
        [name for name in pages if name not in tracked and is_page(git.folder / name)],
    )


def _files(
    git: Git, paths: list[str], limit: str, held_back: _HeldBack | None, prefix: str = ""
) -> dict[str, os.stat_result]:
    """The files and links to copy of a tree and of repositories in it; `prefix`: the path of such a
    repository.

    Files to hold back go into `held_back` instead, unless that is None.
    """
    words = ["ls-files", "-z", "--cached", "--others", *_IGNORED, "--error-unmatch", "--"]
    names = dict.fromkeys(git.names(*words, *paths))
    _check_size(git.folder, dict.fromkeys(names, 0), limit)
    without: set[str] = set()
    if held_back is not None:
        secret, pages = _held_back(git, paths, names)
        held_back.secret.update({prefix + name: prefix + shown for name, shown in secret.items()})
        held_back.pages.extend(prefix + name for name in pages)
        without = {*secret, *pages}
    files: dict[str, os.stat_result] = {}
    for name in (name for name in names if name not in without):
        path = f"{git.folder}/{name}"
        try:
            about = os.lstat(path)
        except OSError:  # git tracks it, but it is gone
            continue
        if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
            files[prefix + name] = about
        elif os.path.lexists(f"{path}/.git"):
            files |= _files(git.at(path), [], limit, held_back, f"{prefix}{name.rstrip('/')}/")
    # A link may have replaced a folder that git tracks.
    links = {name for name, about in files.items() if stat.S_ISLNK(about.st_mode)}
    return {name: files[name] for name in files if not _within(_folder_of(name), links)}


def _ignored(git: Git, paths: list[str]) -> list[str]:
    """The files that git ignores, folders as `x/`, without folders that ignore themselves, such as runs."""
    words = ["ls-files", "-z", "--others", "--ignored", *_IGNORED, "--directory", "--"]
    names = git.names(*words, *paths)
    ignoring = {name.rpartition("/")[0] for name in names if name.endswith(("/.gitignore", "__pycache__/"))}
    around = {parent for name in ignoring for parent in _parents(name)}
    return [name for name in names if name[:-1] not in around and not _within(name, ignoring)]


def _within(name: str, folders: Collection[str]) -> bool:
    """Whether a path is one of `folders`, or lies in one of them."""
    return bool(folders) and any(parent in folders for parent in _parents(name))


def _parents(name: str) -> Iterator[str]:
    """A path and the folders above it: `a/b`, `a` and `.`. Without Path, which is slow for so many."""
    folder = name.rstrip("/")
    while folder:
        yield folder
        folder = _folder_of(folder)
    yield "."


def _folder_of(name: str) -> str:
    """The folder of a path; empty: the top."""
    return name.rpartition("/")[0]


def _links(top: Path, directory: Path, paths: list[str]) -> dict[str, str]:
    """The paths that `snapshot.link` turns into links, and the originals to which they lead."""
    links: dict[str, str] = {}
    for path in paths:
        name = os.path.relpath(os.path.normpath(directory / path), top)
        if f"{os.path.relpath(directory, top)}/".startswith(f"{name}/") or name.split("/")[0] in (".", ".."):
            raise CastoffError(
                f"snapshot.link: {path}: is not below {top}, or contains the job's working directory"
            )
        if not os.path.lexists(top / name):
            raise CastoffError(f"snapshot.link: {path}: {top / name} does not exist")
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
        f"snapshot: {top} holds {files_words(len(sizes))}{'' if many else f', {size_words(total)}'}, but a "
        f"snapshot may hold {MAX_FILES:,} files and {limit}\n"
        f"the largest in it: {largest}\n"
        "list in .gitignore what is not code, or in the job what is: snapshot: {paths: [src]}; "
        "snapshot: {limit: 2G} allows larger files"
    )


# Copying


def _copy(source: str, code: Path, name: str) -> None:
    """Copy a file. A link leads to the copy of its target, or to the target itself if that is not copied."""
    from shutil import copy2

    copy = f"{code}/{name}"
    if os.path.islink(source):  # noqa: PTH114 - 20,000 Paths would take a second
        target = os.path.realpath(source)
        inside = os.path.relpath(target, source.removesuffix(f"/{name}"))
        if inside.split("/")[0] != ".." and os.path.lexists(code / inside):
            target = os.path.relpath(code / inside, code / _folder_of(name))
        Path(copy).symlink_to(target)
        return
    try:
        copy2(source, copy)
    except OSError as error:
        if error.filename == source and error.filename2 is None:  # otherwise the error is about the copy
            raise CastoffError(f"snapshot: {source}: cannot be read: {error.strerror}") from error
        raise
