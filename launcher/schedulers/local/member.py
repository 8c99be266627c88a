"""One member of a local run: its script, from its start to its end."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from castoff.launcher.launchers.local.processes import allowed_cores, on_cores
from castoff.launcher.runs.records import Facts, ending_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.command import SETTINGS
from castoff.launcher.schedulers.local.control import INDEX, KILL_AFTER, MARK
from castoff.launcher.schedulers.local.usage import UsageMeter

ALWAYS_INHERITED = frozenset(["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"])
"""What a job has of its submitter's environment, whatever it inherits; its script says the same."""


class Start(NamedTuple):
    """An attempt that is due."""

    member: int
    attempt: int
    first: int
    """The attempt that this submission began the member with."""

    @property
    def next(self) -> Start:
        """The attempt after it."""
        return self._replace(attempt=self.attempt + 1)


class Member:
    """One member's running script."""

    def __init__(
        self,
        run: RunDirectory,
        plan: Facts,
        directory: str | None,
        start: Start,
        lock: int,
        mark: str,
        cores: list[int],
    ):
        """Start it in `directory` on `cores`; it inherits `lock`, and has `mark` in its environment.

        Raises:
            OSError: it cannot be started.
        """
        self.run = run
        """Where its directory is by now."""
        self.number = start.member
        self.cores = cores
        self.start = start
        self._began_in = run
        self.kill_at: float | None = None
        self.why: str | None = None
        """Why it was asked to end; None: it was not."""
        with run.script_log(self.number).open("ab") as log, on_cores(cores):
            self.process = subprocess.Popen(
                [*shlex.split(plan.shell), str(run.script)],
                env=_environment(run, plan, directory, start, mark),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock],
            )
        self.meter = UsageMeter(self.process, len(cores or allowed_cores()))
        self.deadline = None if plan.walltime is None else time.monotonic() + plan.walltime

    @property
    def attempts(self) -> list[Start]:
        """The one that its script began with, and those that the script has begun since, by itself."""
        found = [self.start]
        while attempt_folder(self.run, following := found[-1].next).exists():
            found.append(following)
        return found

    @property
    def folder(self) -> Path:
        """That of its newest attempt."""
        return attempt_folder(self.run, self.attempts[-1])

    def end(self, why: str) -> None:
        """TERM now, KILL later; where the script has said how it ends, that is not why it does."""
        if self.kill_at is None and self.meter.poll() is None:
            if ending_of(self.folder) is None:
                self.why = why
            self.kill_at = time.monotonic() + KILL_AFTER
            self.process.terminate()

    def step(self) -> bool:
        """Do what the time asks for; whether the script is over."""
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.end("walltime")
        if self.kill_at is not None and now >= self.kill_at:
            self.process.kill()  # what it leaves behind is ended by the scheduler
        self.meter.look()
        return self.meter.poll() is not None

    def owns(self, process: psutil.Process) -> bool:
        """Whether a process without a parent was this member's, as far as that can be seen."""
        try:
            if os.getsid(process.pid) == self.process.pid:
                return True
            environ = process.environ()
        except (psutil.Error, OSError):
            return False
        return environ.get(INDEX) == str(self.number)

    @property
    def was_cut_short(self) -> bool:
        """Whether the script ended by itself, and yet never came to where it records its ending.

        It keeps room for that record from the start, so that no full disk can be the reason. Where its run
        directory was moved, it can write no record.
        """
        if self.run is not self._began_in:
            return False
        try:
            room = (self.folder / ".ending.json").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return 0 <= self.process.returncode <= 128 and not room.strip()


def attempt_folder(run: RunDirectory, start: Start) -> Path:
    """Where an attempt's records are, or will be."""
    return run.path / "attempts" / f"{start.member}.{start.attempt}"


def _environment(
    run: RunDirectory, plan: Facts, directory: str | None, start: Start, mark: str
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in _inherited(plan).items()
        if not name.startswith("CASTOFF_") or name in SETTINGS
    }
    environment.update(
        CASTOFF_RUN_DIR=str(run.path),
        CASTOFF_SUBMIT_DIR=directory or str(run.path),
        CASTOFF_JOB_ID=f"local-{os.getpid()}",
        CASTOFF_ATTEMPT=str(start.attempt),
        CASTOFF_FIRST_ATTEMPT=str(start.first),
        CASTOFF_PYTHON=sys.executable,
        **{INDEX: str(start.member), MARK: mark},
    )
    beside = Path(sys.executable).with_name("castoff")
    command = str(beside) if beside.exists() else shutil.which("castoff")
    if command is not None:
        environment["CASTOFF_COMMAND"] = command
    return environment


def _inherited(plan: Facts) -> Mapping[str, str]:
    """What the job asks for of this environment: decided here, for bash reads some of it as it starts.

    Its functions (BASH_FUNC_…), BASH_ENV and SHELLOPTS would reach the script before its first line.
    """
    if plan.inherit == "all":
        return os.environ
    names = plan.inherit if isinstance(plan.inherit, list) else []
    kept = ALWAYS_INHERITED.union(names, plan.env_from)
    return {name: os.environ[name] for name in os.environ if name in kept or name.startswith("CASTOFF_")}
