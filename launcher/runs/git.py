"""Asks git about a folder. Never writes there, never prompts, and never waits longer than it is allowed to.

What a repository's settings would have git start (a pager, a diff program, a file system monitor,
hooks) is switched off. Filters, such as those of git-lfs, are part of what a file is and do run; one
that hangs ends with the patience.
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
    *("-c", "core.bigFileThreshold=8m"),  # no text of more than that in a diff
    # `git diff` would write a fresher index, whatever GIT_OPTIONAL_LOCKS says.
    *("-c", "diff.autoRefreshIndex=false"),
)

_KEPT = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
"""How those variables of git begin that reach it: a GIT_DIR or GIT_INDEX_FILE, as a hook has them, would
have it speak of something else than the folder that it is asked about."""

_FORCED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",  # a partial clone would fetch what it lacks
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


class GitError(Exception):
    """git gave no answer; the text says why."""


class Git:
    """git in one folder, with a moment after which it is not waited for any more."""

    def __init__(self, folder: Path, until: float, environ: Mapping[str, str], **settings: str):
        """`until` is a reading of `time.monotonic()`; `settings` go into git's environment."""
        self.folder = folder
        self._until = until
        self._environ = environ
        self._settings = settings

    def at(self, folder: Path | str, **settings: str) -> Git:
        """git in another folder, with the same patience."""
        return Git(Path(folder), self._until, self._environ, **settings)

    def top(self) -> Git:
        """git in the top folder of the working tree, with the same patience."""
        return self.at(self._line("rev-parse", "--show-toplevel"))

    def ask(self, *words: str) -> str | None:
        """The one line that git prints; None if git fails."""
        with contextlib.suppress(GitError):
            return self._line(*words)
        return None

    def _line(self, *words: str) -> str:
        return os.fsdecode(self.answer(*words).removesuffix(b"\n"))  # a name may end in a line break

    def names(self, *words: str) -> list[str]:
        """The names that git prints, each ended by a NUL byte."""
        return [os.fsdecode(name) for name in self.answer(*words).split(b"\0")[:-1]]

    def answer(self, *words: str) -> bytes:
        """git's output.

        Raises:
            GitError: git fails, is missing, or takes too long.
        """
        from subprocess import DEVNULL, Popen, TimeoutExpired
        from tempfile import TemporaryFile

        # Files, not pipes: what a filter starts may hold a pipe open for longer than git lives.
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
                what = "is not installed" if error.filename == "git" else f"cannot start: {error}"
                raise GitError(f"git {what}") from error
            try:
                code = process.wait(max(self._until - time.monotonic(), 0.1))
            except TimeoutExpired:
                raise GitError("git took too long") from None
            finally:
                if process.returncode is None:  # so its group is its own still, even if git has just ended
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    with contextlib.suppress(TimeoutExpired):  # a dead file system holds it
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
