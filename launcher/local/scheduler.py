"""The local scheduler: runs the members of one job on this machine, detached from its terminal.

`python -m launcher.local.scheduler RUN_DIR` prints the job's id once it holds the run's lock, and
goes on in the background. The lock tells whether it lives, whatever the clock or the process table
say. It does what Slurm or PBS do elsewhere: it waits for other runs, starts the script of each
member, ends it at its walltime, starts it again when the script asks for that, and writes down the
ending of what could not do so itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import psutil

from launcher.local.control import LOCK, cancel_asked
from launcher.local.processes import become_subreaper
from launcher.runs import Run, write_file
from launcher.watch import condition_holds

KILL_AFTER = 10.0
"""Seconds between TERM and KILL at the walltime or a cancellation, as PBS has it."""

_POLL = 0.1


class _Member:
    """One member's running script."""

    def __init__(self, run: Run, number: int, attempt: int, walltime: float | None):
        self.number = number
        self.attempt = attempt
        self.folder = run.path / "attempts" / f"{number}.{attempt}"
        self.deadline = None if walltime is None else time.monotonic() + walltime
        self.kill_at: float | None = None
        self.why = "failed"
        with run.script_log(number).open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", str(run.script)],
                env=_environment(run, number, attempt),
                cwd=run.submission().get("directory"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, why: str) -> None:
        """TERM now, KILL later."""
        if self.kill_at is None:
            self.why = why
            self.kill_at = time.monotonic() + KILL_AFTER
            self.process.terminate()

    def step(self) -> bool:
        """Do what the time asks for; whether the script is over."""
        now = time.monotonic()
        if self.process.poll() is not None:
            return True
        if self.deadline is not None and now >= self.deadline:
            self.end("walltime")
        if self.kill_at is not None and now >= self.kill_at:
            _kill([psutil.Process(self.process.pid)])
        return False


class _Scheduler:
    """Runs all members of a run."""

    def __init__(self, run: Run):
        self.run = run
        self.plan = run.plan()
        self.submission = run.submission()
        count = self.plan.get("array_count") or 1
        self.waiting = [(member, 0) for member in range(count)]
        self.at_most = self.plan.get("array_at_most") or count
        self.running: list[_Member] = []
        self.cancelled = False

    def main(self) -> None:
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._wait_for_others()
        while self.waiting or self.running:
            self._step()
            time.sleep(_POLL)

    def _on_term(self, *_: object) -> None:
        self.cancelled = True

    def _cancelled(self) -> bool:
        return self.cancelled or cancel_asked(self.run)

    def _step(self) -> None:
        if self._cancelled():
            for member, attempt in self.waiting:
                self._record_unstarted(member, attempt, "cancelled")
            self.waiting.clear()
            for running in self.running:
                running.end("cancelled")
        while self.waiting and len(self.running) < self.at_most:
            member, attempt = self.waiting.pop(0)
            self.running.append(_Member(self.run, member, attempt, self.plan.get("walltime")))
        over = [member for member in self.running if member.step()]
        for finished in over:
            self.running.remove(finished)
            self._finish(finished)
        if over:
            _kill(self._orphans())

    def _finish(self, member: _Member) -> None:
        code = member.process.returncode
        if not (member.folder / "ending.json").exists():
            # The script could not write its own ending, so it was killed.
            _record(member.folder, member.why, 128 - code if code < 0 else code)
        if (member.folder / "requeue").exists() and not self._cancelled():
            self.waiting.insert(0, (member.number, member.attempt + 1))

    def _orphans(self) -> list[psutil.Process]:
        """What the scripts that are over have left behind."""
        scripts = {member.process.pid for member in self.running}
        return [child for child in psutil.Process().children() if child.pid not in scripts]

    def _record_unstarted(self, member: int, attempt: int, ending: str) -> None:
        folder = self.run.path / "attempts" / f"{member}.{attempt}"
        folder.mkdir(mode=0o700, exist_ok=True)
        _record(folder, ending, 143)

    def _wait_for_others(self) -> None:
        for condition, paths in (self.submission.get("after") or {}).items():
            for path in paths:
                while not self._cancelled():
                    holds = condition_holds(condition, Run(Path(path)))
                    if holds:
                        break
                    if holds is False:
                        print(f"castoff: {condition} of {path} cannot hold any more", flush=True)
                        self.cancelled = True
                    time.sleep(5 * _POLL)


def _environment(run: Run, member: int, attempt: int) -> dict[str, str]:
    submission = run.submission()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CASTOFF_")}
    environment.update(
        CASTOFF_RUN_DIR=str(run.path),
        CASTOFF_SUBMIT_DIR=str(submission.get("directory", run.path)),
        CASTOFF_JOB_ID=f"local-{os.getpid()}",
        CASTOFF_LOCAL_INDEX=str(member),
        CASTOFF_ATTEMPT=str(attempt),
        CASTOFF_COMMAND=str(Path(sys.executable).with_name("castoff")),
        CASTOFF_PYTHON=sys.executable,
    )
    return environment


def _record(folder: Path, ending: str, code: int) -> None:
    record = {"ending": ending, "code": code, "time": int(time.time())}
    write_file(folder / "ending.json", json.dumps(record) + "\n")


def _kill(processes: Iterable[psutil.Process]) -> None:
    """KILL processes and all their descendants."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [process, *process.children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(family, timeout=1)


def _lock(run: Run) -> TextIO:
    file = (run.path / LOCK).open("w")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def main() -> None:
    """Detach, take the lock, say the id, and run the job."""
    run = Run(Path(sys.argv[1]).resolve())
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end) as answer:
            line = answer.readline()
        print(line, end="")
        sys.exit(0 if line else 1)
    os.close(read_end)
    os.setsid()
    with _lock(run):
        become_subreaper()
        write_file(run.path / "local.json", f'{{"pid": {os.getpid()}}}\n')
        _redirect(run.logs / "scheduler.log")
        os.write(write_end, f"local-{os.getpid()}\n".encode())
        os.close(write_end)
        _Scheduler(run).main()


def _redirect(log: Path) -> None:
    """Let go of the terminal."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    main()
