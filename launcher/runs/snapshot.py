"""A copy of the code in the run directory, so that a job that waits runs what was submitted.

RUN/code/          the tree: the whole repository, or outside of git the folder of the submission
RUN/code.workdir   a link to the folder in it from which the job was submitted; the script goes there

What is code, git says: what it knows, and what it does not ignore. Files are copied as they are on disk. A
hard link would let later edits show through.
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
    """A list of files for a record. It may be long: all are counted, and the first are named."""

    count: int = 0
    first: list[str] = []

    def add(self, *names: str) -> None:
        """Count these names, and keep the first."""
        self.count += len(names)
        self.first = [*self.first, *names][:_NAMED]


class Taken(msgspec.Struct):
    """What a snapshot holds, for the record."""

    files: int
    bytes: int
    left_out: Names
    """What git ignores. Whole folders end in `/`."""
    withheld: Names = msgspec.field(default_factory=Names)
    """What git does not know, and looks by its name as if it held secrets."""

    def words(self) -> str:
        """In one line: `214 files, 1.2 MiB; not in it: data/, venv/`."""
        size = f"{files_words(self.files)}, {size_words(self.bytes)}"
        return size + left_out_words(self.left_out, self.withheld)


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
    withheld: list[str]
    """What git does not know, and looks by its name as if it held secrets."""
    in_git: bool

    @property
    def bytes(self) -> int:
        """The total size of all files."""
        return sum(about.st_size for about in self.files.values())


def tree_around(
    directory: Path, asked: Snapshot, environ: Mapping[str, str], *, is_code: bool = False
) -> Tree:
    """The code around a folder. `is_code`: all that is there was chosen as code before.

    Raises:
        CastoffError: there is too much of it, or it cannot be read, or what is named is not there; or it is
            the user's home.
    """
    from tempfile import TemporaryDirectory

    directory = Path(os.path.realpath(directory))
    with TemporaryDirectory(prefix="castoff-") as scratch:
        try:
            git, in_git = _git(directory, environ, scratch)
            top = git.folder
            paths = [os.path.relpath(os.path.normpath(directory / path), top) for path in asked.paths]
            links = _links(top, directory, asked.link)
            _check_no_home([top / path for path in paths] or [top], environ)
            secret: dict[str, str] | None = None if is_code else {}
            found, ignored = _files(git, paths, asked.limit, secret), _ignored(git, paths)
        except GitError as error:
            raise CastoffError(f"snapshot: {directory}: git reports: {error}") from error
        except OSError as error:
            raise CastoffError(f"snapshot: {error.filename}: cannot be read: {error.strerror}") from error
    files = {name: about for name, about in found.items() if not _within(name, links)}
    _check_size(top, {name: about.st_size for name, about in files.items()}, asked.limit)
    left_out = sorted(name for name in ignored if not _within(name, links))
    withheld = sorted({shown for name, shown in (secret or {}).items() if not _within(name, links)})
    return Tree(top, os.path.relpath(directory, top), files, links, left_out, withheld, in_git)


def take(
    run_path: Path, directory: Path, asked: Snapshot, environ: Mapping[str, str], *, is_code: bool = False
) -> Taken:
    """Copy the code around `directory` into a run directory; `is_code` as in `tree_around`.

    Raises:
        CastoffError: there is too much of it, or it cannot be read, or what is named is not there.
        OSError: the run directory cannot be written.
    """
    tree = tree_around(directory, asked, environ, is_code=is_code)
    code = run_path / "code"
    for folder in {tree.here, *map(_folder_of, tree.files)}:
        (code / folder).mkdir(parents=True, exist_ok=True)
    # Links last: each leads to the copy of what it led to, if that is copied.
    for name in sorted(tree.files, key=lambda name: stat.S_ISLNK(tree.files[name].st_mode)):
        _copy(f"{tree.top}/{name}", code, name)
    for name, target in tree.links.items():
        folder = _folder_of(name)
        if os.path.realpath(code / folder) != os.path.normpath(os.path.realpath(code) + "/" + folder):
            raise CastoffError(f"snapshot.link: {name}: lies in what leads to the original already")
        (code / folder).mkdir(parents=True, exist_ok=True)
        (code / name).symlink_to(target)
    (run_path / "code.workdir").symlink_to(Path("code", tree.here))
    taken = Taken(len(tree.files), tree.bytes, Names())
    taken.left_out.add(*tree.left_out)
    taken.withheld.add(*tree.withheld)
    return taken


def files_words(count: int) -> str:
    """How many files, for people."""
    return "1 file" if count == 1 else f"{count:,} files"


def left_out_words(left_out: Names, withheld: Names) -> str:
    """What is not in it, after what is; empty: all of it is."""
    words = ""
    for what, names in (("not in it", left_out), ("left out, as they may hold secrets", withheld)):
        named = [printable(name) for name in names.first[:5]]
        more = names.count - len(named)
        words += f"; {what}: {', '.join(named)}" * bool(named) + f" and {more} more" * bool(more)
    return words


# Which files


def _git(directory: Path, environ: Mapping[str, str], scratch: str) -> tuple[Git, bool]:
    """git in the top folder around `directory`, and whether that is a repository, as git takes it for one."""
    git = Git(directory, time.monotonic() + PATIENCE, environ)
    try:
        return git.top(), True
    except GitError:
        if any(os.path.lexists(folder / ".git") for folder in (directory, *directory.parents)):
            raise
    git.answer("init", "--quiet", "--template=", scratch)
    return git.at(directory, GIT_DIR=f"{scratch}/.git", GIT_WORK_TREE=str(directory)), False


def _check_no_home(roots: list[Path], environ: Mapping[str, str]) -> None:
    """See that what is to be copied is not the user's home, or a folder above it.

    Raises:
        CastoffError: it is.
    """
    import pwd

    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # nobody has this id
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    real = [os.path.realpath(home) for home in homes if home.startswith("/")]
    for root in map(os.path.realpath, roots):
        if root == "/" or any(f"{home}/".startswith(f"{root}/") for home in real):
            raise CastoffError(
                f"snapshot: the code would be all of {printable(root)}, "
                f"{'your home' if root in real else 'which is no project'}: submit from the project's own "
                "folder (if that is in no git repository of its own, `git init` makes one), or list in the "
                "job what is code: snapshot: {paths: [src]}"
            )


def _secret(git: Git, paths: list[str], names: Iterable[str]) -> dict[str, str]:
    """Those of the files that look like secrets and that nobody has named, each with what is shown for it.

    A file counts as named if git tracks it or if `paths` lists it.
    """
    secret: dict[str, str] = {}
    for name in names:
        named = max((path for path in paths if _within(name, (path,))), key=len, default="")
        inside = os.path.relpath(name, named) if named not in ("", ".") else name
        if inside != "." and (part := secret_part(inside)):
            secret[name] = os.path.normpath(f"{named}/{part}").lstrip("/") + "/" * (part != inside)
    if not secret:
        return {}
    tracked = {*git.names("ls-files", "-z", "--cached")}
    return {name: part for name, part in secret.items() if name not in tracked}


def _files(
    git: Git, paths: list[str], limit: str, secret: dict[str, str] | None, prefix: str = ""
) -> dict[str, os.stat_result]:
    """The files and links to be copied of a tree, and of the repositories within: `prefix` leads to one.

    Those that look like secrets are put into `secret` instead, unless that is None.
    """
    words = ["ls-files", "-z", "--cached", "--others", *_IGNORED, "--error-unmatch", "--"]
    names = dict.fromkeys(git.names(*words, *paths))
    _check_size(git.folder, dict.fromkeys(names, 0), limit)
    held_back = {} if secret is None else _secret(git, paths, names)
    if secret is not None:
        secret |= {prefix + name: prefix + shown for name, shown in held_back.items()}
    found: dict[str, os.stat_result] = {}
    for name in (name for name in names if name not in held_back):
        path = f"{git.folder}/{name}"
        try:
            about = os.lstat(path)
        except OSError:  # git knows it, but it is gone
            continue
        if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
            found[prefix + name] = about
        elif os.path.lexists(f"{path}/.git"):
            found |= _files(git.at(path), [], limit, secret, f"{prefix}{name.rstrip('/')}/")
    # A link may have taken the place of a folder that git knows.
    links = {name for name, about in found.items() if stat.S_ISLNK(about.st_mode)}
    return {name: found[name] for name in found if not _within(_folder_of(name), links)}


def _ignored(git: Git, paths: list[str]) -> list[str]:
    """What git ignores, a whole folder as `x/`; but for folders that ignore themselves, as runs do."""
    words = ["ls-files", "-z", "--others", "--ignored", *_IGNORED, "--directory", "--"]
    names = git.names(*words, *paths)
    own = {name.rpartition("/")[0] for name in names if name.endswith(("/.gitignore", "__pycache__/"))}
    around = {parent for name in own for parent in _parents(name)}
    return [name for name in names if name[:-1] not in around and not _within(name, own)]


def _within(name: str, folders: Collection[str]) -> bool:
    """Whether a name is one of these, or lies in one."""
    return bool(folders) and any(parent in folders for parent in _parents(name))


def _parents(name: str) -> Iterator[str]:
    """A name, and the folders that it lies in: `a/b`, `a` and `.`. There are many, and a Path takes long."""
    folder = name.rstrip("/")
    while folder:
        yield folder
        folder = _folder_of(folder)
    yield "."


def _folder_of(name: str) -> str:
    """The folder that a name lies in; empty: the top."""
    return name.rpartition("/")[0]


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


def _copy(source: str, code: Path, name: str) -> None:
    """Copy a file; a link leads to the copy of what it led to, or to the original where there is no copy."""
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
        if error.filename == source and error.filename2 is None:  # else it is about the copy
            raise CastoffError(f"snapshot: {source}: cannot be read: {error.strerror}") from error
        raise
