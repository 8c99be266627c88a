"""Asks Slurm about jobs, and ends them: the only module that runs squeue, sacct and scancel for runs.

One squeue answers for all runs, and sacct is asked at most once beside it. Slurm that does not answer has
said nothing: that is a `silence`, not an ending.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.schedulers.environment import command_environment
from launcher.schedulers.slurm import cancel_command
from launcher.schedulers.slurm_jobs import (
    MOST_ASKED,
    JobTold,
    history_command,
    parse_history,
    parse_queue,
    queue_command,
)

_QUEUE_PATIENCE = 30.0
"""Seconds for squeue: what a busy controller may take."""

_HISTORY_PATIENCE = 8.0
"""Seconds for sacct, without which everything works."""

_HISTORY_PAUSE = 60.0
"""Seconds until an sacct that failed is asked again."""

Key = tuple[str, int | None]
"""A job's id and its index in an array."""


class Answer(NamedTuple):
    """What squeue said."""

    jobs: Mapping[Key, JobTold]
    ids: frozenset[str]
    """All jobs in it, whichever of an array's."""
    silence: str | None = None
    """Why it said nothing."""
    lasting: bool = False
    """Whether it is no use to ask again from here."""


NOT_ASKED = Answer({}, frozenset())
"""Where nothing had to be asked."""


class _Silent(Exception):
    """A command that gave no answer; the text says why."""

    def __init__(self, why: str, *, lasting: bool = False):
        super().__init__(why)
        self.lasting = lasting


class Queue:
    """Slurm, as far as one process has asked it."""

    def __init__(self, environ: Mapping[str, str] | None = None):
        self.environ = os.environ if environ is None else environ
        self.user = str(os.geteuid())
        self._history_failed: float | None = None

    @property
    def user_name(self) -> str:
        """This user's name."""
        return _name(self.user)

    def ask(self) -> Answer:
        """Ask squeue for all jobs of this user."""
        try:
            told = parse_queue(_run(queue_command(self.user), _QUEUE_PATIENCE, self.environ))
        except _Silent as why:
            return Answer({}, frozenset(), str(why), why.lasting)
        return Answer({(one.job, one.task): one for one in told}, frozenset(one.job for one in told))

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobTold]] | None:
        """What accounting knows of the starts of jobs, by id; None where it does not answer in time."""
        wanted = sorted({*jobs}, key=lambda job: (len(job), job))[-MOST_ASKED:]
        told = self._accounted(history_command(wanted))
        if told is None:
            return None
        found: dict[str, list[JobTold]] = {}
        for one in told:
            found.setdefault(one.job, []).append(one._replace(user=_name(one.user) if one.user else None))
        return found

    def history_since(self, since: float) -> list[JobTold]:
        """What accounting knows of this user's jobs since some time; nothing where it does not answer."""
        return self._accounted(history_command(user=self.user, since=since)) or []

    def _accounted(self, command: list[str]) -> list[JobTold] | None:
        failed = self._history_failed
        if failed is not None and time.monotonic() - failed < _HISTORY_PAUSE:
            return None
        try:
            return parse_history(_run(command, _HISTORY_PATIENCE, self.environ))
        except _Silent:
            self._history_failed = time.monotonic()
            return None

    def cancel(self, jobs: Iterable[str]) -> None:
        """Have Slurm end jobs: all of an array's.

        Raises:
            CastoffError: it refuses; with its words.
        """
        try:
            _run(cancel_command(jobs), _QUEUE_PATIENCE, self.environ)
        except _Silent as why:
            raise CastoffError(str(why)) from None

    def script_of(self, job: str) -> bytes | None:
        """The script of a job that waits or runs; None where Slurm does not tell."""
        try:
            told = _run(["scontrol", "write", "batch_script", job, "-"], _QUEUE_PATIENCE, self.environ)
        except _Silent:
            return None
        return told.encode("utf-8", "surrogateescape")


def _run(argv: list[str], patience: float, environ: Mapping[str, str]) -> str:
    """What a command prints.

    Raises:
        _Silent: it is not here, fails, or takes too long.
    """
    program = shutil.which(argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise _Silent(f"{argv[0]} is not on PATH here; ask on a login node of the machine", lasting=True)
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            env={**command_environment(environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Silent(f"{argv[0]} gave no answer within {patience:.0f} s") from None
    except OSError as error:
        raise _Silent(f"{argv[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout.strip() or "without a word").split())
        said = said.encode("utf-8", "replace").decode()
        raise _Silent(f"{argv[0]} failed with exit code {done.returncode}: {said[:500]}")
    return done.stdout


def _name(user: str) -> str:
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, ValueError):
        return user
