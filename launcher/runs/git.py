"""Queries git about a folder. It never writes there, never prompts, and waits for a limited time.

Programs that a repository's settings would start (a pager, a diff program, a file system monitor, hooks) are
switched off. Filters, such as those of git-lfs, do run, since they determine a file's content; one that hangs
is ended at the time limit.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

_QUIET = (
    *("--no-pager", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=true", "-c", "core.safecrlf=false"),
    *("-c", "core.bigFileThreshold=8m"),  # a diff shows no larger files as text
    # `git diff` would update the index, even with GIT_OPTIONAL_LOCKS=0.
    *("-c", "diff.autoRefreshIndex=false"),
)

_KEPT = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
"""Beginnings of those GIT_ variables that are passed on. Others, such as a hook's GIT_DIR or GIT_INDEX_FILE,
would make git look at another repository than the folder's.
"""

_FORCED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",  # a partial clone would fetch what it lacks
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


class GitError(Exception):
    """git gave no answer; the text is the reason."""


class Git:
    """git in one folder, with a time after which it is ended."""

    def __init__(self, folder: Path, until: float, environ: Mapping[str, str], **settings: str):
        """`until`: the time limit, by `time.monotonic()`; `settings`: further variables for git."""
        self.folder = folder
        self._until = until
        self._environ = environ
        self._settings = settings

    def at(self, folder: Path | str, **settings: str) -> Git:
        """git in another folder, with the same time limit."""
        return Git(Path(folder), self._until, self._environ, **settings)

    def top(self) -> Git:
        """git in the top folder of the working tree, with the same time limit."""
        return self.at(self._line("rev-parse", "--show-toplevel"))

    def ask(self, *words: str) -> str | None:
        """Run git and return the one line that it prints; None if it fails."""
        with contextlib.suppress(GitError):
            return self._line(*words)
        return None

    def _line(self, *words: str) -> str:
        return os.fsdecode(self.answer(*words).removesuffix(b"\n"))  # a name may end in a line break

    def names(self, *words: str) -> list[str]:
        """Run git and return the names that it prints, each ended by a NUL byte."""
        return [os.fsdecode(name) for name in self.answer(*words).split(b"\0")[:-1]]

    def answer(self, *words: str) -> bytes:
        """Run git and return its output.

        Raises:
            GitError: git fails, is missing, or takes too long.
        """
        from subprocess import DEVNULL, Popen, TimeoutExpired
        from tempfile import TemporaryFile

        # Files, not pipes: a filter's child process may hold a pipe open for longer than git lives.
        with TemporaryFile() as output, TemporaryFile() as complaints:
            try:
                process = Popen(
                    ["git", *_QUIET, *words],
                    cwd=self.folder,
                    env=self._environment(),
                    stdin=DEVNULL,
                    stdout=output,
                    stderr=complaints,
                    start_new_session=True,
                )
            except OSError as error:
                problem = "is not installed" if error.filename == "git" else f"cannot start: {error}"
                raise GitError(f"git {problem}") from error
            try:
                code = process.wait(max(self._until - time.monotonic(), 0.1))
            except TimeoutExpired:
                raise GitError("git took too long") from None
            finally:
                if process.returncode is None:  # not reaped, so nothing else can have its group's id
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    with contextlib.suppress(TimeoutExpired):  # blocked by a dead file system
                        process.wait(1)
            output.seek(0)
            complaints.seek(0)
            if code:
                message = " ".join(complaints.read(1000).decode(errors="replace").split())
                raise GitError(re.sub("^(fatal|error): ", "", message) or f"git ended with code {code}")
            return output.read()

    def _environment(self) -> dict[str, str]:
        dropped = {name for name in self._environ if name.startswith("GIT_") and not name.startswith(_KEPT)}
        kept = {name: value for name, value in self._environ.items() if name not in dropped}
        return {**kept, **_FORCED, **self._settings}
