"""The files of a git working tree: what git knows, what it does not, and never those of castoff's runs.

What git does not know may hold a secret, and then goes neither into a run's record nor into its snapshot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from launcher.runs.git import Git
from launcher.runs.run import RUNS_FOLDER

_NAMED = 100

_SECRET = (
    *(".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd"),
    *(".git-credentials", ".ssh", ".aws", ".gnupg", ".kube", ".docker", ".dockercfg"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks"),
    *("*.kdbx", "*.keystore", "*.gpg", "*.asc", "*credential*", "*secret*", "*password*", "*passwd*"),
    *("token", "token.*", "*.token", "*_token", "*_token.*", "*-token", "*-token.*", "*apikey*", "*api_key*"),
)
"""Names, in lower case, of files and folders that commonly hold secrets."""

_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?:\\n|[\s+-])*[A-Za-z0-9+/]{16}")

_SECRET_LENGTH = 6
"""A shorter value of a secret would be found everywhere."""


class Names(msgspec.Struct):
    """A list of files for a record. It may be long: all are counted, and the first are named."""

    count: int = 0
    first: list[str] = []

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """All of them."""
        every = list(names)
        return cls(len(every), every[:_NAMED])

    def add(self, name: str) -> None:
        """One more."""
        self.count += 1
        self.first = [*self.first, name][:_NAMED]


def is_secret(name: str) -> bool:
    """Whether a file's name, or a folder's that it is in, says that it may hold a secret."""
    return any(_secret_words().match(word) for word in name.lower().split("/"))


@cache
def _secret_words() -> re.Pattern[str]:
    from fnmatch import translate

    return re.compile("|".join(map(translate, _SECRET)))


class Secrets:
    """What may not be in a file that is kept: a private key, and values of the job's secrets."""

    def __init__(self, values: Iterable[str] = ()):
        # Line by line: in a diff each stands after a + or -.
        lines = (line for value in values for line in os.fsencode(value).splitlines())
        self._lines = [line for line in lines if len(line) >= _SECRET_LENGTH]

    def are_in(self, text: bytes) -> bool:
        """Whether one of them stands there."""
        return bool(_PRIVATE_KEY.search(text)) or any(line in text for line in self._lines)


class Worktree:
    """A git working tree. Names count from its top, which has `/` between folders and none at the end."""

    def __init__(self, git: Git, run: Path):
        """`git` is in the tree's top folder; `run` is the directory of the run that is being made."""
        self.git = git
        self.top = git.folder
        self._run = run

    @classmethod
    def around(cls, folder: Path, run: Path, until: float, environ: Mapping[str, str]) -> Worktree:
        """The working tree that a folder is in; git answers until `until` (`time.monotonic()`).

        Raises:
            GitError: there is none, or git does not tell.
        """
        git = Git(folder, until, environ)
        return cls(git.at(Path(git.line("rev-parse", "--show-toplevel"))), run)

    def tracked(self, paths: Iterable[str] = ()) -> list[str]:
        """Files that git knows, whether or not they are still there; submodules among them."""
        return self._list(["--cached"], paths)

    def untracked(self, paths: Iterable[str] = ()) -> list[str]:
        """Files that git neither knows nor ignores. A repository within the tree is named alone, as `x/`."""
        return self._list(["--others", "--exclude-standard", *self._exclusions()], paths)

    def ignored(self, paths: Iterable[str] = ()) -> list[str]:
        """What git ignores; a folder that is ignored as a whole is named alone, as `x/`."""
        words = ["--others", "--ignored", "--exclude-standard", "--directory"]
        return self._list(words, paths)

    def modules(self) -> list[str]:
        """The submodules, whether or not they are there."""
        entries = self.git.names("ls-files", "--stage", "-z")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]

    def within(self, name: str) -> Worktree | None:
        """The working tree of a repository in this one; None where nothing is checked out."""
        folder = self.top / name
        return Worktree(self.git.at(folder), self._run) if os.path.lexists(folder / ".git") else None

    def _list(self, words: list[str], paths: Iterable[str]) -> list[str]:
        names = dict.fromkeys(self.git.names("ls-files", "-z", *words, "--", *paths))  # once each
        return _without_runs(self.top, names, self._run)

    def _exclusions(self) -> list[str]:
        """Spares git the walk through what may be thousands of files."""
        return [f"--exclude=/{_pattern(folder)}/" for folder in own_folders(self.top, self._run)]


def _without_runs(top: Path, names: Iterable[str], run: Path) -> list[str]:
    """The names but for those in run directories, of which a working directory may hold many."""
    names = list(names)
    own = set(own_folders(top, run))
    for name in names:
        folder, _, last = name.rpartition("/")
        if last == "job.sh" and folder and (top / folder / "attempts").is_dir():
            own.add(folder)
    return [name for name in names if own.isdisjoint(parents(name))] if own else names


def parents(name: str) -> list[str]:
    """A name without its slash at the end, and every folder that it is in."""
    words = name.rstrip("/").split("/")
    return ["/".join(words[:count]) for count in range(1, len(words) + 1)]


def own_folders(top: Path, run: Path) -> list[str]:
    """The run directory, and the folder of runs if it is castoff's alone, as far as they are below `top`."""
    found = []
    for folder in (run, *([run.parent] if run.parent.name == RUNS_FOLDER else [])):
        name = os.path.relpath(folder, top)
        if name != "." and name.split("/")[0] != "..":
            found.append(name)
    return found


def _pattern(name: str) -> str:
    """A name as git's patterns have it."""
    return "".join(f"\\{letter}" if letter in "\\*?[ " else letter for letter in name)


def files_words(count: int) -> str:
    """How many files, for people."""
    return "1 file" if count == 1 else f"{count:,} files"


def shown(name: str) -> str:
    """A name for a message: on one line, and writable in UTF-8."""
    return name if name.isprintable() else ascii(name)[1:-1]
