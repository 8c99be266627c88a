"""The local scheduler: runs the members of one job on this machine, detached from its terminal.

`python -m launcher.local.scheduler RUN_DIR` prints the job's id once it holds the run's lock, and
goes on in the background. The lock tells whether it lives, whatever the clock or the process table
say. It does what Slurm or PBS do elsewhere: it waits for other runs, starts the script of each
member, ends it at its walltime, starts it again when the script asks for that, and writes down the
ending of what could not do so itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from launcher.local.control import LOCK, SETTLED, cancel_asked, introduce
from launcher.local.processes import become_subreaper
from launcher.runs import Run, locked, read_record, write_file
from launcher.watch import condition_holds

KILL_AFTER = 10.0
"""Seconds between TERM and KILL at the walltime or a cancellation, as PBS has it."""

_POLL = 0.1
_GIVE_UP = 5.0
"""Seconds after which a process that KILL does not end counts as one that cannot be ended."""

_SETTINGS = ("CASTOFF_RUNS_DIR", "CASTOFF_SITE")
"""The user's own variables; every other CASTOFF_* is what some other job was told."""

_DEFAULT = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


class _Member:
    """One member's running script."""

    def __init__(self, run: Run, plan: Mapping[str, Any], number: int, attempt: int):
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self.number = number
        self.attempt = attempt
        self.folder = _attempt_folder(run, number, attempt)
        walltime = plan.get("walltime")
        self.kill_at: float | None = None
        self.why: str | None = None
        """Why it was asked to end; None: it was not."""
        with run.script_log(number).open("ab") as log:
            self.process = subprocess.Popen(
                [*shlex.split(str(plan.get("shell", "/bin/bash"))), str(run.script)],
                env=_environment(run, number, attempt),
                cwd=run.submission().get("directory"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.deadline = None if walltime is None else time.monotonic() + walltime

    @property
    def ended(self) -> bool:
        """Whether the script is over or has said how it ends."""
        return self.process.poll() is not None or (self.folder / "ending.json").exists()

    def end(self, why: str) -> None:
        """TERM now, KILL later."""
        if self.kill_at is None and not self.ended:
            self.why = why
            self.kill_at = time.monotonic() + KILL_AFTER
            self.process.terminate()

    def step(self) -> bool:
        """Do what the time asks for; whether the script is over."""
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.end("walltime")
        if self.kill_at is not None and now >= self.kill_at:
            self.process.kill()  # what it leaves behind is ended by `_Scheduler._end_leftovers`
        return self.process.poll() is not None

    def owns(self, process: psutil.Process) -> bool:
        """Whether a process without a parent was this member's, as far as that can be seen."""
        try:
            if os.getsid(process.pid) == self.process.pid:
                return True
            told = process.environ()
        except (psutil.Error, OSError):
            return False
        return told.get("CASTOFF_LOCAL_INDEX") == str(self.number)


class _Scheduler:
    """Runs all members of a run."""

    def __init__(self, run: Run):
        self.run = run
        self.plan = run.plan()
        count = self.plan.get("array_count") or 1
        self.waiting = [(member, 0) for member in range(count)]
        self.at_most = self.plan.get("array_at_most") or count
        self.running: list[_Member] = []
        self.cancelled: str | None = None
        """Why the run is ended early; None while it is not."""

    def main(self) -> None:
        """Run it to its end; whatever happens here, nothing is left running."""
        signal.signal(signal.SIGTERM, self._on_term)
        # Handlers, where ignoring a signal would have the scripts ignore it too.
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in _DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        try:
            self._wait_for_others()
            while self.waiting or self.running:
                self._step()
                if self.waiting or self.running:
                    time.sleep(_POLL)
        finally:
            for member in self.running:
                member.process.kill()
                member.process.wait()
            self.running.clear()
            self._end_leftovers(None)

    def _on_term(self, *_: object) -> None:
        self.cancelled = self.cancelled or "asked to end"

    def _look_for_cancellation(self) -> bool:
        if self.cancelled is None and cancel_asked(self.run):
            self.cancelled = "asked to end"
        return self.cancelled is not None

    def _step(self) -> None:
        self._look_for_cancellation()
        if self.cancelled is not None:
            for number, attempt in self.waiting:
                self._record_unstarted(number, attempt, "cancelled", 143, self.cancelled)
            self.waiting.clear()
            for member in self.running:
                member.end("cancelled")
        while self.waiting and len(self.running) < self.at_most:
            self._begin(*self.waiting.pop(0))
        for member in [member for member in self.running if member.step()]:
            self.running.remove(member)
            self._end_leftovers(member)
            self._finish(member)

    def _begin(self, number: int, attempt: int) -> None:
        try:
            self.running.append(_Member(self.run, self.plan, number, attempt))
        except OSError as error:
            reason = f"its script could not be started: {error}"
            self._record_unstarted(number, attempt, "failed", 126, reason)

    def _finish(self, member: _Member) -> None:
        """See to it that the ending is on record, and that a requeue happens."""
        code = member.process.returncode
        code = 128 - code if code < 0 else code
        said = read_record(member.folder / "ending.json").get("ending")
        if member.why is not None and said not in ("again", member.why) and not _is_done(member):
            # The script knows only that it was asked to end, and tells why by a clock that may be wrong.
            self._record(member.folder, member.why, code or 143, None)
        elif said is None:
            killer = f"killed by signal {code - 128}" if code > 128 else "unable to write its records"
            self._record(member.folder, "failed", code or 1, f"its script was {killer}")
        if (member.folder / "requeue").exists():
            self.waiting.insert(0, (member.number, member.attempt + 1))
        _settle(member.folder)

    def _end_leftovers(self, member: _Member | None) -> None:
        """KILL what a member's script has left behind; None, or no other member: whatever is left."""
        give_up = time.monotonic() + _GIVE_UP
        scripts = {other.process.pid for other in self.running}
        while True:
            left = [child for child in psutil.Process().children() if child.pid not in scripts]
            if member is not None and self.running:
                left = [child for child in left if member.owns(child)]
            if not left:
                return
            if time.monotonic() > give_up:
                print(f"castoff: cannot end {', '.join(str(child.pid) for child in left)}", flush=True)
                return
            for child in left:
                _kill_tree(child)
            psutil.wait_procs(left, timeout=0.2)

    def _record(self, folder: Path, ending: str, code: int, reason: str | None) -> None:
        record = {"ending": ending, "code": code, "time": int(time.time()), "reason": reason}
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            write_file(folder / "ending.json", json.dumps(record) + "\n")
        except OSError as error:  # a full disk must not end the other members
            print(f"castoff: {folder}: {ending} could not be recorded: {error}", flush=True)

    def _record_unstarted(self, number: int, attempt: int, ending: str, code: int, reason: str) -> None:
        folder = _attempt_folder(self.run, number, attempt)
        self._record(folder, ending, code, reason)
        _settle(folder)

    def _wait_for_others(self) -> None:
        for condition, paths in (self.run.submission().get("after") or {}).items():
            for path in paths:
                other = Run(Path(path))
                while not self._look_for_cancellation():
                    holds = condition_holds(condition, other)
                    if holds:
                        break
                    if holds is False:
                        self.cancelled = f"{condition} of {other.id} cannot hold any more"
                        print(f"castoff: {self.cancelled}", flush=True)
                    else:
                        time.sleep(5 * _POLL)


def _is_done(member: _Member) -> bool:
    """Whether a program that was asked to end says that it had finished its work."""
    try:
        outcome = (member.folder / "outcome").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return False
    return member.process.returncode == 0 and outcome.strip() == "done"


def _settle(folder: Path) -> None:
    """Say that an attempt's ending is final and that nothing of it is left running."""
    with contextlib.suppress(OSError):  # then it counts as soon as this scheduler is gone
        (folder / SETTLED).touch(mode=0o600)


def _attempt_folder(run: Run, number: int, attempt: int) -> Path:
    return run.path / "attempts" / f"{number}.{attempt}"


def _environment(run: Run, member: int, attempt: int) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CASTOFF_") or name in _SETTINGS
    }
    environment.update(
        CASTOFF_RUN_DIR=str(run.path),
        CASTOFF_SUBMIT_DIR=str(run.submission().get("directory", run.path)),
        CASTOFF_JOB_ID=f"local-{os.getpid()}",
        CASTOFF_LOCAL_INDEX=str(member),
        CASTOFF_ATTEMPT=str(attempt),
        CASTOFF_PYTHON=sys.executable,
    )
    beside = Path(sys.executable).with_name("castoff")
    command = str(beside) if beside.exists() else shutil.which("castoff")
    if command is not None:
        environment["CASTOFF_COMMAND"] = command
    return environment


def _kill_tree(process: psutil.Process) -> None:
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # gone, or another user's: the caller looks again, and gives up in time


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
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(run.path / LOCK))
        except BlockingIOError:
            sys.exit(f"castoff: {run.path}: another scheduler sees to this run already")
        if run.attempts():
            # To begin again would write over what happened. `castoff submit` makes a new run.
            sys.exit(f"castoff: {run.path}: this run has begun before; submit its job.yaml again")
        become_subreaper()
        introduce(run)
        _redirect(run.logs / "scheduler.log")
        os.write(write_end, f"local-{os.getpid()}\n".encode())
        os.close(write_end)
        _Scheduler(run).main()
        sys.stdout.flush()
        os._exit(0)  # the lock goes with the process: who finds it free finds nothing left running


def _redirect(log: Path) -> None:
    """Let go of the terminal."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    main()
