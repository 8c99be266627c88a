"""Asks git about a folder. Never writes there, never prompts, and never waits longer than it was told to.

What a repository's settings would have git start (a pager, a diff program, a file system monitor,
hooks) is switched off. Filters, such as those of git-lfs, are part of what a file is and do run; one
that hangs ends with the patience.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_QUIET = (
    *("--no-pager", "--literal-pathspecs"),
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotePath=true", "-c", "core.safecrlf=false"),
    # `git diff` would write a fresher index, whatever GIT_OPTIONAL_LOCKS says.
    *("-c", "diff.autoRefreshIndex=false"),
)

_KEPT = ("GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
"""With GIT_CONFIG*, the only variables that reach git: a GIT_DIR or GIT_INDEX_FILE, as a hook has them,
would have it speak of something else than the folder that it is asked about."""

_FORCED = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",  # a partial clone would fetch what it lacks
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


class GitError(Exception):
    """git gave no answer; the text says why."""


class GitMissing(GitError):
    """There is no git to ask."""


class GitLate(GitError):
    """It was not done in time."""


class GitRefused(GitError):
    """It said no, in its own words."""


class Git:
    """git in one folder, with a moment after which it is not waited for any more."""

    def __init__(self, folder: Path, until: float, environ: Mapping[str, str]):
        """`until` is a reading of `time.monotonic()`."""
        self.folder = folder
        self.until = until
        self._environ = environ

    def at(self, folder: Path) -> Git:
        """The same in another folder."""
        return Git(folder, self.until, self._environ)

    def line(self, *words: str) -> str:
        """The one line that it answers; it may hold anything but end in a line break."""
        return os.fsdecode(b"".join(self.chunks(*words)).removesuffix(b"\n"))

    def ask(self, *words: str) -> str | None:
        """As `line`; None if it says no."""
        try:
            return self.line(*words)
        except GitRefused:
            return None

    def names(self, *words: str) -> list[str]:
        """The names that it answers, each ended by a NUL byte."""
        answer = b"".join(self.chunks(*words))
        return [os.fsdecode(name) for name in answer.split(b"\0")[:-1]]

    def chunks(
        self, *words: str, given: bytes = b"", settings: Mapping[str, str] | None = None
    ) -> Iterator[bytes]:
        """What it writes, as it comes; `given` is its standard input, `settings` go into its environment.

        Raises:
            GitError: it gave none.
        """
        import subprocess
        import tempfile

        with tempfile.TemporaryFile() as question, tempfile.TemporaryFile() as complaints:
            question.write(given)
            question.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *_QUIET, *words],
                    cwd=self.folder,
                    env={**self._environment(), **(settings or {})},
                    stdin=question,
                    stdout=subprocess.PIPE,
                    stderr=complaints,
                    start_new_session=True,
                )
            except OSError as error:
                what = "is not installed" if error.filename == "git" else f"cannot start: {error}"
                raise GitMissing(f"git {what}") from error
            with _ended(process):
                yield from self._output(process)
                code = process.wait(max(self.until - time.monotonic(), 0.1))
            if code:
                complaints.seek(0)
                raise GitRefused(_reason(complaints.read(10_000)) or f"git ended with code {code}")

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._environ.items()
            if not name.startswith("GIT_") or name in _KEPT or name.startswith("GIT_CONFIG")
        }
        return {**kept, **_FORCED}

    def _output(self, process: subprocess.Popen[bytes]) -> Iterator[bytes]:
        """Not read to its end by whoever breaks off; a filter that keeps it open does not keep us."""
        import select

        assert process.stdout is not None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        while True:
            left = self.until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise GitLate("git took too long")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            yield chunk


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """See to it that git and all that it started are gone."""
    import subprocess

    try:
        yield
    except subprocess.TimeoutExpired:
        raise GitLate("git took too long") from None
    finally:
        if process.stdout is not None:
            process.stdout.close()
        if process.returncode is None:  # so its group is its own still, even if git itself has ended
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a dead file system holds it
                process.wait(1)


def _reason(complaint: bytes) -> str:
    """The line that says why, and the command that git says would help; there may be hints around them."""
    lines = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[:1]
    helps = [line for line in lines if line.startswith("git config ")]
    return "; ".join([*(line.partition(": ")[2] or line for line in said[:1]), *helps[:1]])
