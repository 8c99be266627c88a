"""One member of a local run: its script, from its start to its end."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from castoff.launcher import clock
from castoff.launcher.launchers.local.processes import allowed_cores, on_cores
from castoff.launcher.runs.records import Facts, ending_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.command import SETTINGS
from castoff.launcher.schedulers.local.control import INDEX, KILL_AFTER, MARK
from castoff.launcher.schedulers.local.usage import UsageMeter

ALWAYS_INHERITED = frozenset(["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"])
"""Variables that a job gets from the submitter's environment, whatever `inherit` says; job scripts contain
the same list.
"""


class Start(NamedTuple):
    """An attempt of a member that is due to start."""

    member: int
    attempt: int
    first: int
    """The member's first attempt in this submission."""

    @property
    def next(self) -> Start:
        """Return the next attempt of the same member."""
        return self._replace(attempt=self.attempt + 1)


class Share(NamedTuple):
    """What a member has of this machine, and no member beside it."""

    cores: list[int]
    """Empty: the member's script is not bound."""
    devices: Mapping[str, str] = {}
    """The variables that show its programs its devices alone."""


class Member:
    """A member's running script."""

    def __init__(
        self,
        run: RunDirectory,
        plan: Facts,
        directory: str | None,
        start: Start,
        lock: int,
        mark: str,
        share: Share,
    ):
        """Start the script in `directory` with its share of this machine; the script inherits `lock`, and has
        `mark` in its environment.

        Raises:
            OSError: the script cannot be started.
        """
        self.run = run
        """The run; if the run directory is moved, the local scheduler replaces this value."""
        self.number = start.member
        self.share, cores = share, share.cores
        self.start = start
        self._began_in = run
        self.kill_at: float | None = None
        self.why: str | None = None
        """Why the script was asked to end; None: nobody asked."""
        with run.script_log(self.number).open("ab") as log, on_cores(cores):
            self.process = subprocess.Popen(
                [*shlex.split(plan.shell), str(run.script)],
                env={**_environment(run, plan, directory, start, mark), **share.devices},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock],
            )
        self.meter = UsageMeter(self.process, len(cores or allowed_cores()))
        self.deadline = None if plan.walltime is None else clock.now() + plan.walltime

    @property
    def attempts(self) -> list[Start]:
        """The attempt that the script began with, and further attempts that the script itself has begun."""
        attempts = [self.start]
        while attempt_folder(self.run, following := attempts[-1].next).exists():
            attempts.append(following)
        return attempts

    @property
    def folder(self) -> Path:
        """The folder of the newest attempt."""
        return attempt_folder(self.run, self.attempts[-1])

    def end(self, why: str) -> None:
        """Send TERM now and KILL later; `why` is the reason unless the script has already recorded its
        ending.
        """
        if self.kill_at is None and self.meter.poll() is None:
            if ending_of(self.folder) is None:
                self.why = why
            self.kill_at = clock.now() + KILL_AFTER
            self.process.terminate()

    def step(self) -> bool:
        """Enforce the time limits and measure the usage; return whether the script has ended."""
        now = clock.now()
        if self.deadline is not None and now >= self.deadline:
            self.end("walltime")
        if self.kill_at is not None and now >= self.kill_at:
            self.process.kill()  # the scheduler ends processes that the script leaves behind
        self.meter.look()
        return self.meter.poll() is not None

    def owns(self, process: psutil.Process) -> bool:
        """Whether a process without a parent belonged to this member, as far as its session or environment
        shows.
        """
        try:
            if os.getsid(process.pid) == self.process.pid:
                return True
            environ = process.environ()
        except (psutil.Error, OSError):
            return False
        return environ.get(INDEX) == str(self.number)

    @property
    def was_cut_short(self) -> bool:
        """Whether the script ended by itself without reaching the line that records its ending.

        A full disk cannot be the reason, since the script reserves space for that record at its start. If the
        run directory was moved, the script cannot write the record.
        """
        if self.run is not self._began_in:
            return False
        try:
            room = (self.folder / ".ending.json").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return 0 <= self.process.returncode <= 128 and not room.strip()


def attempt_folder(run: RunDirectory, start: Start) -> Path:
    """Return the folder for an attempt's records, which may not exist yet."""
    return run.path / "attempts" / f"{start.member}.{start.attempt}"


def _environment(
    run: RunDirectory, plan: Facts, directory: str | None, start: Start, mark: str
) -> dict[str, str]:
    environment = {
        name: value
        for name, value in inherited(plan).items()
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
    command_path = Path(sys.executable).with_name("castoff")
    command = str(command_path) if command_path.exists() else shutil.which("castoff")
    if command is not None:
        environment["CASTOFF_COMMAND"] = command
    return environment


def inherited(plan: Facts) -> Mapping[str, str]:
    """Return the variables of this environment that the job inherits, since bash reads some variables before
    the script can act.

    Bash's functions (BASH_FUNC_…), BASH_ENV and SHELLOPTS would act before the script's first line.
    """
    if plan.inherit == "all":
        return os.environ
    names = plan.inherit if isinstance(plan.inherit, list) else []
    kept = ALWAYS_INHERITED.union(names, plan.env_from)
    return {name: os.environ[name] for name in os.environ if name in kept or name.startswith("CASTOFF_")}
