"""Submitting to the local scheduler, and looking at what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status import watch
from tests import patience
from tests.command_line import Castoff as Castoff

STUBBORN = "trap '' TERM INT HUP; touch here; while :; do sleep 0.1; done"
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in range(3):
            os.close(number)
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists("daemon"):
    time.sleep(0.01)
{then}
"""


class LocalJobs:
    """Jobs on the local scheduler, submitted from `folder`."""

    def __init__(self, castoff: Castoff, folder: Path):
        self.castoff = castoff
        self.folder = folder

    def submit(self, *args: str | Path, env: Mapping[str, str] | None = None, sh: str = "") -> RunDirectory:
        """Submit a job file or program; `sh`: a line of shell as the program."""
        program = ["--", "sh", "-c", sh] if sh else []
        words = ["submit", "--site", "local", "--json", *args, *program]
        answer = self.castoff(*words, cwd=self.folder, env=env)
        assert answer.returncode == 0, answer.stderr
        return RunDirectory(Path(json.loads(answer.stdout)["directory"]))

    def job(self, text: str, name: str = "job.yaml") -> Path:
        """A job file."""
        path = self.folder / name
        path.write_text(text)
        return path

    def wait(self, run: RunDirectory) -> dict[str, Any]:
        """The run's status, once it is over; as `castoff wait --json` prints it, but sooner."""
        now = watch.wait(run, patience.SECONDS)
        assert now.over
        reported: dict[str, Any] = msgspec.to_builtins(now)
        return reported

    def status(self, run: RunDirectory) -> dict[str, Any]:
        """As `castoff status --json` prints it."""
        reported: dict[str, Any] = msgspec.to_builtins(watch.status(run))
        return reported

    def log(self, run: RunDirectory, member: int = 0) -> str:
        """What the ranks wrote, without castoff's own words."""
        lines = run.script_log(member).read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith("castoff:"))

    def processes(self, run: RunDirectory) -> list[psutil.Process]:
        """Every living process that was started for the run, its scheduler included."""
        return processes_of(run)

    def nothing_left(self, run: RunDirectory) -> bool:
        """Whether nothing that was started for the run lives."""
        return not self.processes(run)

    def scheduler(self, run: RunDirectory) -> psutil.Process:
        """The run's scheduler."""
        return psutil.Process(json.loads((run.path / "local.json").read_text())["pid"])

    def kill_everything(self, run: RunDirectory) -> None:
        """As a machine that loses its power; stopped first, so that nobody can write a last word."""
        # What is dead has no words; when it is buried does not matter. What was just born comes later.
        while family := self.processes(run):
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.send_signal(number)
            time.sleep(0.01)

    def runs(self) -> list[RunDirectory]:
        return local_runs(self.folder)

    def until_tidy(self, run: RunDirectory) -> None:
        """Wait until the scheduler of a run that is over has gone: until then, files come and go.

        `wait` does not, so that whatever is done next meets what users meet.
        """
        while is_alive(run):
            time.sleep(0.005)

    def holders(self, run: RunDirectory, text: str) -> list[str]:
        """The names of a run's files that hold a text, once it is over."""
        self.wait(run)
        self.until_tidy(run)
        return [path.name for path in run.path.rglob("*") if path.is_file() and text in path.read_text()]


def objects(output: str) -> list[Any]:
    """What a verb prints with --json: an object on each line."""
    return [json.loads(line) for line in output.splitlines()]


STRANGER = 12345
"""Nobody's user id."""


def give_away(path: Path) -> None:
    """Make it somebody else's."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path, STRANGER, STRANGER)


def everything(folder: Path) -> set[str]:
    """What lies in a folder, and in the folders in it."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def processes_of(run: RunDirectory) -> list[psutil.Process]:
    """Every living process that was started for a run, its scheduler included."""
    found = []
    for process in psutil.process_iter():
        try:
            words, reported = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if str(run.path) in words or reported.get("CASTOFF_RUN_DIR") == str(run.path):
            found.append(process)
    return found


def local_runs(folder: Path) -> list[RunDirectory]:
    """The runs of the local scheduler in a folder and those in it, while they come and go there."""
    found = []
    for path, _, files in os.walk(folder):
        if "local.lock" in files:
            with contextlib.suppress(CastoffError):  # a test has given it away
                found.append(RunDirectory(Path(path)))
    return found


@pytest.fixture
def jobs(castoff: Castoff, tmp_path: Path, for_real: None) -> Iterator[LocalJobs]:
    """Jobs on the local scheduler; what still runs at the end is killed."""
    local = LocalJobs(castoff, tmp_path)
    yield local
    for run in local.runs():
        while is_alive(run) and watch.status(run).over:
            time.sleep(0.02)  # it is about to go
        if is_alive(run):
            local.kill_everything(run)


ANSWERS = Path(__file__).parent / "answers"


@pytest.fixture
def answering(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """An environment whose PATH holds a scheduler's programs alone; they print a folder of `answers`.

    The one of that folder without accounting has sacctmgr fail as the real one did. `program="..."`
    has that program run a line of shell instead.
    """

    def make(folder: str, **instead: str) -> dict[str, str]:
        held = ANSWERS / folder
        server = f"case $1 in -Q) cat {held}/queues.txt;; -B) cat {held}/server.txt;; *) exit 2;; esac"
        refusal = f"cat {held}/qos.err >&2; exit 1"
        about = f"case $* in *partition*) cat {held}/partitions.txt;; *node*) cat {held}/hosts.txt;; "
        about += f"*) cat {held}/config.txt;; esac"
        accounts = f"case $* in *withassoc*) cat {held}/user.txt;; *) cat {held}/qos.txt;; esac"
        slurm = {
            "scontrol": about,
            "sinfo": f"cat {held}/nodes.txt",
            "sacctmgr": refusal if (held / "qos.err").exists() else accounts,
        }
        programs = {"qstat": server, "pbsnodes": f"cat {held}/nodes.txt"} if folder == "pbs" else slurm
        place = tmp_path / "scheduler"
        place.mkdir(exist_ok=True)
        for name, line in {**programs, **instead}.items():
            (place / name).write_text(f"#!/bin/sh\n{line}\n")
            (place / name).chmod(0o755)
        for name in ("cat", "sleep"):
            if not (place / name).exists():
                (place / name).symlink_to(str(shutil.which(name)))
        return {**os.environ, "PATH": str(place)}

    return make


@pytest.fixture
def until() -> Callable[..., object]:
    """Wait until something holds."""
    return patience.until


@pytest.fixture
def bad_file() -> Path:
    """A file that is there and cannot be read, even by root."""
    path = Path("/proc/self/mem")
    if not path.exists():
        pytest.skip("no such file on this system")
    return path


@pytest.fixture
def umask() -> Iterator[None]:
    """The usual one, whatever runs the tests."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def shared_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group has others in it, too; that of a user who runs tests may be theirs alone."""
    monkeypatch.setattr("castoff.launcher.trust.people.is_only_ours", lambda gid: False)
