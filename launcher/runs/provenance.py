"""The record of a run's code: commit and differences of the folder that it was submitted from.

If git is missing, refuses or takes too long, the record says so. It holds no values of `env_from`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from castoff.launcher.process import files
from castoff.launcher.runs.git import Git, GitError
from castoff.launcher.runs.pages import is_page
from castoff.launcher.runs.records import read as read_record
from castoff.launcher.runs.records import write
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.secrets import secret_part
from castoff.launcher.runs.snapshot import Names, Taken, files_words, take

if TYPE_CHECKING:
    from castoff.launcher.config.job_fields import Snapshot

DIFF_LIMIT = 2**20
"""The maximum size of code.diff in bytes."""

PATIENCE = 10.0
"""Seconds that git may take for all queries together."""

_SECRET_LENGTH = 6


class Code(msgspec.Struct):
    """The code of a run: what code.json holds."""

    castoff: str | None = None
    """castoff's version."""
    python: str = ""
    """The version of the Python that castoff ran in, which may differ from the job's."""
    repository: str | None = None
    """The working tree's top folder; None outside of git."""
    commit: str | None = None
    branch: str | None = None
    """None if no branch is checked out."""
    remote: str | None = None
    """The address from which the branch is fetched, without passwords."""
    changed: Names = msgspec.field(default_factory=Names)
    """Tracked files that differ from the commit, including those of submodules."""
    untracked: Names = msgspec.field(default_factory=Names)
    """Files that git neither tracks nor ignores, without pages that castoff wrote."""
    diff_bytes: int = 0
    left_out: dict[str, Names] = {}
    """Files whose difference is not in code.diff, by reason."""
    incomplete: str | None = None
    """Why the record is incomplete; None: it is complete."""
    snapshot: Taken | None = None


def record(
    run_path: Path,
    directory: Path,
    environ: Mapping[str, str],
    *,
    secrets: Iterable[str] = (),
    snapshot: Snapshot | None = None,
    is_code: bool = False,
) -> None:
    """Write code.json and code.diff into a run directory, and take the snapshot if requested.

    `directory`: the folder of submission; `secrets`: names of variables in `environ`; `is_code`: all files
    there were selected as code before.

    Raises:
        CastoffError: the snapshot cannot be taken.
        OSError: the run directory cannot be written.
    """
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    code = Code(python=python_version())
    with contextlib.suppress(PackageNotFoundError):  # run from a checkout
        code.castoff = version("castoff")
    diff = _Diff(code, [environ[name] for name in secrets if name in environ])
    try:
        git = Git(directory, time.monotonic() + PATIENCE, environ).top()
        code.repository = str(git.folder)
        code.branch = git.ask("symbolic-ref", "--quiet", "--short", "HEAD")
        code.remote = _without_password(git.ask("ls-remote", "--get-url"))
        _describe(git, diff)
    except (GitError, OSError) as error:
        code.incomplete = str(error)
    if snapshot is not None:
        code.snapshot = take(run_path, directory, snapshot, environ, is_code=is_code)
    write(run_path / "code.json", code)
    if code.diff_bytes:
        files.replace(run_path / "code.diff", b"".join(diff.texts))


def read(run: RunDirectory) -> Code | None:
    """Read the code record of a run; None if there is none."""
    return read_record(run.path / "code.json", Code)


def words(run: RunDirectory) -> str | None:
    """The code in one line, as `3f2a1bc (branch main, 2 files changed)`; None if nothing is known."""
    code = read(run)
    if code is None or (code.repository is None and code.snapshot is None):
        return None
    about = []
    if code.repository is not None:
        about.append(f"branch {code.branch}" if code.branch else "no branch")
        counts = ((code.changed.count, "changed"), (code.untracked.count, "new"))
        about += [f"{files_words(count)} {kind}" for count, kind in counts if count] or ["unchanged"]
        about += ["incomplete"] if code.incomplete else []
    about += ["snapshot"] if code.snapshot else []
    return f"{code.commit[:7] if code.commit else 'no commit'} ({', '.join(about)})"


def _without_password(url: str | None) -> str | None:
    """A remote's address without parts that may be secret: the user, a query, a remote helper's arguments."""
    if url is None or not re.search("[/:]", url):  # for a remote without an address, git prints its name
        return None
    return re.sub(r"^(\w+::).*|(?<=://)[^/]*@|[?#].*", r"\1", url, flags=re.DOTALL)


def _describe(git: Git, diff: _Diff, prefix: str = "") -> None:
    """Add the changes in the folder of `git` since its commit.

    `prefix`: the path of a submodule, whose files are listed like those of the outer tree.
    """
    commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
    if not prefix:
        diff.code.commit = commit  # first: later queries may reach the time limit
    entries = (entry.partition("\t") for entry in git.names("ls-files", "--stage", "-z"))
    modules = [name for about, _, name in entries if about.startswith("160000 ")]
    which = ["--others"] if commit else ["--others", "--cached"]  # before the first commit all is new
    new = sorted({*git.names("ls-files", "-z", *which, "--exclude-standard")})
    new = [name for name in new if not is_page(git.folder / name)]
    for name, text in _sections(git, prefix, "HEAD") if commit else ():
        diff.code.changed.add(name)
        diff.add(name, text)
    diff.code.untracked.add(*(prefix + name for name in new))
    _add_new(git, new, diff, prefix)
    for name in modules:
        if os.path.lexists(git.folder / name / ".git"):
            _describe(git.at(git.folder / name), diff, f"{prefix}{name}/")


class _Diff:
    """The text of code.diff as it grows, and the files that are left out."""

    def __init__(self, code: Code, secrets: Iterable[str]):
        self.code = code
        self.texts: list[bytes] = []
        # Line by line, since a diff puts + or - before each. Short values would match everywhere.
        lines = (line for value in secrets for line in os.fsencode(value).splitlines())
        self._secrets = [line for line in lines if len(line) >= _SECRET_LENGTH]

    @property
    def room(self) -> int:
        return DIFF_LIMIT - self.code.diff_bytes

    def add(self, name: str, text: bytes) -> None:
        """Add the difference of a file, unless it must be left out."""
        if re.search(rb"^Binary files .* differ$", text, re.MULTILINE):
            self.leave_out(name, "binary or very long")
        elif any(line in text for line in self._secrets):
            self.leave_out(name, "holds a value of env_from")
        elif len(text) > self.room:
            self.leave_out(name)
        else:
            self.texts.append(text)
            self.code.diff_bytes += len(text)

    def leave_out(self, name: str, reason: str = f"no room in {DIFF_LIMIT >> 20} MiB") -> None:
        self.code.left_out.setdefault(reason, Names()).add(name)


def _add_new(git: Git, names: list[str], diff: _Diff, prefix: str) -> None:
    """Add untracked files: first Python files, then others, each by size.

    They are added to a temporary index and object folder, so that the user's repository does not change.
    """
    from tempfile import TemporaryDirectory

    # A name that ends in / is a repository inside this one.
    paths = {name: git.folder / name for name in names if name[-1] != "/"}
    sizes = {name: path.lstat().st_size for name, path in paths.items() if os.path.lexists(path)}
    room, chosen = diff.room, []
    for name in sorted(sizes, key=lambda name: (not name.endswith(".py"), sizes[name], name)):
        if secret_part(name):
            diff.leave_out(prefix + name, "may hold a secret, by its name")
        elif sizes[name] > room:
            diff.leave_out(prefix + name)
        else:
            chosen.append(name)
            room -= sizes[name]
    if not chosen:
        return
    with TemporaryDirectory(prefix="castoff-") as folder:
        names_file = Path(folder, "names")
        names_file.write_bytes(b"\0".join(map(os.fsencode, chosen)))
        temporary = git.at(git.folder, GIT_INDEX_FILE=f"{folder}/index", GIT_OBJECT_DIRECTORY=folder)
        temporary.answer(
            "add", "--intent-to-add", f"--pathspec-from-file={names_file}", "--pathspec-file-nul"
        )
        for name, text in _sections(temporary, prefix):
            diff.add(name, text)


def _sections(git: Git, prefix: str, *base: str) -> Iterator[tuple[str, bytes]]:
    """The name and text of each file in `git diff`, in the same format whatever the user's settings are."""
    words = ["diff", *base, "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index"]
    words += ["--ignore-submodules=dirty", "--unified=3"]
    text = git.answer(*words, f"--src-prefix=a/{prefix}", f"--dst-prefix=b/{prefix}", "--")
    for section in re.split(rb"^(?=diff --git )", text, flags=re.MULTILINE)[1:]:
        header, _, rest = section.partition(b"\n")
        if rest:  # a file with only a new time has no hunk
            yield _name(header.removeprefix(b"diff --git ")), section


def _name(header: bytes) -> str:
    """The name in a header `a/NAME b/NAME`, of which each half may be quoted as in C."""
    half = header[: (len(header) - 1) // 2]
    if half.startswith(b'"'):
        half = half[1:-1].decode("unicode_escape").encode("latin-1")
    return os.fsdecode(half[2:])
