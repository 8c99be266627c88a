"""What code a run was submitted with: commit and differences of the working directory, in its record.

A record is made in any case: where git is missing, refuses or takes too long, it says so. It holds no
secrets as far as they can be told: a file whose name says that it holds one is named and no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from launcher.runs.git import Git, GitError, GitLate
from launcher.runs.run import Run, read_record, write_file
from launcher.runs.snapshot import Taken, take
from launcher.runs.worktree import Names, Secrets, Worktree, files_words, is_secret

if TYPE_CHECKING:
    from launcher.config.job import Snapshot

DIFF_LIMIT = 2**20
"""Bytes of code.diff at the most."""

_NO_ROOM = f"no room in {DIFF_LIMIT >> 20} MiB"

PATIENCE = 10.0
"""Seconds that git may take for all questions together."""

_LOOKED_AT = 5000
"""Of the files that git does not know, so many are looked at; more would not fit, and take their time."""

_CODE = (
    *(".py", ".pyx", ".pyi", ".ipynb", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"),
    *(".f90", ".jl", ".r", ".j2", ".yaml", ".yml", ".toml", ".ini", ".cfg"),
)
"""Of the files that git does not know, these come first into what room there is."""


class Module(msgspec.Struct):
    """A submodule."""

    path: str
    commit: str | None
    """What is checked out there; None where nothing is."""
    changed: bool
    """Whether files in it differ from that commit, or git does not know them."""


class Code(msgspec.Struct):
    """The code of a run: what code.json holds."""

    castoff: str | None
    """castoff's own version."""
    python: str
    """Of the Python that castoff ran in, which need not be the job's."""
    repository: str | None = None
    """The working tree's top folder; None outside of git."""
    commit: str | None = None
    branch: str | None = None
    """None where no branch is checked out."""
    tags: list[str] = []
    remote: str | None = None
    """Where the branch is fetched from, else `origin`; without passwords."""
    changed: Names = msgspec.field(default_factory=Names)
    """Files that git knows and that differ from the commit."""
    untracked: Names = msgspec.field(default_factory=Names)
    """Files that git neither knows nor ignores."""
    modules: list[Module] = []
    diff_bytes: int = 0
    left_out: dict[str, Names] = {}
    """Files whose difference is not in code.diff, by the reason."""
    incomplete: str | None = None
    """Why less is known than there may be to know."""
    snapshot: Taken | None = None


def record(
    run_path: Path,
    directory: Path,
    environ: Mapping[str, str],
    *,
    secrets: Iterable[str] = (),
    snapshot: Snapshot | None = None,
) -> None:
    """Write code.json and code.diff into a run directory, and take the snapshot if one is asked for.

    `directory` is where the job is submitted from; `secrets` are names of variables in `environ`.

    Raises:
        CastoffError: the snapshot cannot be taken.
        OSError: the run directory cannot be written.
    """
    from platform import python_version

    code = Code(castoff=_own_version(), python=python_version())
    kept = Secrets(environ[name] for name in secrets if name in environ)
    diff = _Diff(kept)
    try:
        tree = Worktree.around(directory, run_path, time.monotonic() + PATIENCE, environ)
        code.repository = str(tree.top)
        _describe(code, tree, diff)
    except GitLate:
        code.incomplete = f"git took longer than {PATIENCE:g} s; what it did not tell is not here"
    except (GitError, OSError) as error:
        code.incomplete = str(error)
    if snapshot is not None:
        code.snapshot = take(run_path, directory, snapshot, environ, kept)
    text = b"".join(diff.texts)
    code.diff_bytes, code.left_out = len(text), diff.left_out
    write_file(run_path / "code.json", json.dumps(msgspec.to_builtins(code), indent=2) + "\n")
    if text:
        write_file(run_path / "code.diff", text.decode(errors="surrogateescape"))


def read(run: Run) -> Code | None:
    """The code of a run; None if nothing was written down."""
    try:
        return msgspec.convert(read_record(run.path / "code.json"), Code)
    except msgspec.ValidationError:
        return None


def words(run: Run) -> str | None:
    """A run's code in one line, as `3f2a1bc (branch main, 2 files changed)`; None if nothing is known."""
    code = read(run)
    if code is None or (code.repository is None and code.snapshot is None):
        return None
    about = []
    if code.repository is not None:
        about.append(f"branch {code.branch}" if code.branch else "no branch")
        counts = ((code.changed.count, "changed"), (code.untracked.count, "new"))
        about += [f"{files_words(count)} {what}" for count, what in counts if count] or ["unchanged"]
        about += ["incomplete"] if code.incomplete else []
    about += ["snapshot"] if code.snapshot else []
    return f"{code.commit[:7] if code.commit else 'no commit'} ({', '.join(about)})"


def _own_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("castoff")
    except PackageNotFoundError:  # run from a checkout
        return None


def _describe(code: Code, tree: Worktree, diff: _Diff) -> None:
    """Ask git, what costs least first: it may run out of time."""
    git = tree.git
    code.commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    code.branch = git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
    code.remote = _remote(git, code.branch)
    code.tags = (git.ask("tag", "--points-at", "HEAD") or "").split() if code.commit else []
    if code.commit is not None:
        for name, text in _sections(_differences(git, ["HEAD"]), DIFF_LIMIT):
            code.changed.add(name)
            diff.add(name, text)
    modules = tree.modules()
    new = tree.untracked()
    if code.commit is None:  # everything is
        new = [name for name in [*tree.tracked(), *new] if name not in modules]
    code.untracked = Names.of(new)
    _add_new(tree, new, diff)
    for path in modules:
        code.modules.append(_module(tree, path, diff))


def _module(tree: Worktree, path: str, diff: _Diff) -> Module:
    """A submodule; its differences are added as if its files were the outer tree's own."""
    inner = tree.within(path)
    if inner is None:
        return Module(path, None, changed=False)
    commit = inner.git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    changed = False
    for name, text in _sections(_differences(inner.git, ["HEAD"], f"{path}/"), DIFF_LIMIT):
        changed = True
        diff.add(name, text)
    new = inner.untracked()
    _add_new(inner, new, diff, f"{path}/")
    return Module(path, commit, changed or bool(new))


def _remote(git: Git, branch: str | None) -> str | None:
    name = git.ask("config", "--get", f"branch.{branch}.remote") if branch else None
    if name in (None, "."):  # the branch follows none, or another branch here
        name = "origin"
    url = git.ask("config", "--get", f"remote.{name}.url")
    return _without_password(url) if url else None


def _without_password(url: str) -> str:
    """A remote's address without what could be a secret: user and password, and a query.

    The user stays where a key is what opens the door, as in ssh://git@host/path and git@host:path.
    """
    if "::" in url:  # a helper of its own, whose words git does not define
        return url.partition("::")[0] + "::…"
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    host, slash, path = rest.partition("/")
    user, at, host = host.rpartition("@")
    user = user.partition(":")[0] + at if scheme in ("ssh", "git+ssh", "ssh+git") else ""
    return f"{scheme}://{user}{host}{slash}{re.split('[?#]', path)[0]}"


# Differences


class _Diff:
    """The text of code.diff as it grows, and what it leaves out."""

    def __init__(self, secrets: Secrets):
        self.texts: list[bytes] = []
        self.room = DIFF_LIMIT
        self.left_out: dict[str, Names] = {}
        self._secrets = secrets

    def add(self, name: str, text: bytes | None) -> None:
        """Add a file's difference, whole or not at all; None stands for one that is too long."""
        if is_secret(name) or (text and self._secrets.are_in(text)):
            self.leave_out(name, "may hold a secret")
        elif text is None or len(text) > self.room:
            self.leave_out(name, _NO_ROOM)
        elif re.search(rb"^Binary files .* differ$", text, re.MULTILINE):
            self.leave_out(name, "binary")
        else:
            self.texts.append(text)
            self.room -= len(text)

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out.setdefault(reason, Names()).add(name)


def _differences(
    git: Git, base: list[str], prefix: str = "", settings: Mapping[str, str] | None = None
) -> Iterator[bytes]:
    """`git diff` against `base`, in one form whatever the user's settings say."""
    words = ["diff", *base, "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index"]
    words += ["--ignore-submodules=dirty", "--unified=3"]
    words += [f"--src-prefix=a/{prefix}", f"--dst-prefix=b/{prefix}", "--"]
    return git.chunks(*words, settings=settings)


def _add_new(tree: Worktree, names: list[str], diff: _Diff, prefix: str = "") -> None:
    """Add files that git does not know.

    An index of its own tells git of them, which its objects follow: the user's stay as they are.
    """
    from tempfile import TemporaryDirectory

    names = sorted((name for name in names if not name.endswith("/")), key=_is_data)
    for name in names[_LOOKED_AT:]:
        diff.leave_out(prefix + name, _NO_ROOM)
    sizes = _sizes(tree.top, names[:_LOOKED_AT])
    room = diff.room
    chosen = []
    for name in sorted(sizes, key=lambda name: (_is_data(name), sizes[name])):
        if is_secret(name):
            diff.leave_out(prefix + name, "may hold a secret")
        elif sizes[name] > room:
            diff.leave_out(prefix + name, _NO_ROOM)
        else:
            chosen.append(name)
            room -= sizes[name]
    if not chosen:
        return
    with TemporaryDirectory(prefix="castoff-") as folder:
        settings = {"GIT_INDEX_FILE": f"{folder}/index", "GIT_OBJECT_DIRECTORY": folder}
        given = b"".join(os.fsencode(name) + b"\0" for name in chosen)
        words = ["add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul"]
        for _ in tree.git.chunks(*words, given=given, settings=settings):
            pass
        for name, text in _sections(_differences(tree.git, [], prefix, settings), DIFF_LIMIT):
            diff.add(name, text)


def _is_data(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() not in _CODE


def _sizes(top: Path, names: Iterable[str]) -> dict[str, int]:
    """The size of each file that is still there."""
    sizes = {}
    for name in names:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sizes[name] = os.lstat(top / name).st_size
    return sizes


_HEADER = b"\ndiff --git "


def _sections(chunks: Iterable[bytes], limit: int) -> Iterator[tuple[str, bytes | None]]:
    """Each file of a diff with its text; None as the text of one that is longer than `limit`."""
    held, cut = b"\n", False
    for chunk in chunks:
        held += chunk
        *whole, held = held.split(_HEADER)
        for text in whole:
            yield from _section(text + b"\n", cut)
            cut = False
        if len(held) > limit:
            header, _, rest = held.partition(b"\n")
            # The + keeps the rest of a line from looking like the beginning of one.
            held, cut = header + b"\n+" + rest[-len(_HEADER) :], True
    yield from _section(held, cut)


def _section(text: bytes, cut: bool) -> Iterator[tuple[str, bytes | None]]:
    header, _, rest = text.partition(b"\n")
    # What stands before the first has no header; a file that was only touched has nothing else.
    if header and rest:
        yield _name(header), None if cut else _HEADER[1:] + text


def _name(header: bytes) -> str:
    """The file of `a/NAME b/NAME`, where each half may be quoted as in C."""
    half = header[: (len(header) - 1) // 2]
    if half.startswith(b'"'):
        half = half[1:-1].decode("unicode_escape").encode("latin-1")
    return os.fsdecode(half[2:])
