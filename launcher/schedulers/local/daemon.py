"""The local scheduler: runs the members of one job on this machine, detached from its terminal.

`python -m castoff.launcher.cli.local_scheduler RUN_DIR` prints the job's id once it holds the run's lock, and
keeps running in the background. The lock shows whether it lives, whatever the clock or the process table
say; `castoff submit`, which holds it before, hands it down as standard input, and the scripts and their
ranks inherit it. It does what Slurm or PBS do elsewhere: it waits for other runs, starts the script of each
member, ends it at its walltime, starts it again when the script asks for that, and writes down the
ending of what could not do so itself.

Each submission is taken once. Who is killed on the way has either not begun anything, or leaves
scripts that hold the lock until they are over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local.processes import (
    become_subreaper,
    children,
    descendants,
    process_of,
    send,
    shares,
)
from castoff.launcher.process.locks import take
from castoff.launcher.runs.owner import record_owner, taken_submission
from castoff.launcher.runs.records import Ending, Submission, begins, encode, ending_of, write
from castoff.launcher.runs.run import LOCK, SETTLED, USAGE, RunDirectory, stop_requested
from castoff.launcher.runs.secrets import SECRETS
from castoff.launcher.schedulers.local.control import cancel_requested, cancelled_members
from castoff.launcher.schedulers.local.member import Member, Start, attempt_folder

Waits = Callable[[str, RunDirectory], Callable[[], bool | None]]
"""Takes a condition and the run that it is about; returns a function that tells whether the condition
holds: False if it never will, None if not yet."""

_POLL = 0.1
_GIVE_UP = 5.0
"""Seconds after which a process that KILL does not end counts as one that cannot be ended."""

_ENDINGS = {0: "done", 75: "walltime", 143: "cancelled"}
"""What a script's exit code means where it could not write its own record; any other: it failed."""

_SPARE = ".spare"

_DEFAULT = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


class _Scheduler:
    """Runs all members of a run."""

    def __init__(self, run: RunDirectory, submission: Submission, lock: int, mark: str, waits: Waits):
        self.run = run
        self.waits = waits
        self.lock = lock
        self.mark = mark
        self.plan = run.facts()
        self.submission = submission
        due = begins(submission, self.plan)
        self.waiting = [Start(member, attempt, attempt) for member, attempt in sorted(due.items())]
        max_concurrent = self.plan.array_max_concurrent or len(due)
        needed = (self.plan.ranks or 1) * (self.plan.cores_per_rank or 1)
        self.free = shares(min(max_concurrent, len(due)), needed)
        """The cores of each member that could run beside those that do."""
        self.running: list[Member] = []
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
                    clock.sleep(_POLL)
        finally:
            for member in self.running:
                member.process.kill()
                member.process.wait()
            self.running.clear()
            self._end_leftovers(None)
            with contextlib.suppress(OSError):  # nor is it needed where it is not there
                (self.run.path / SECRETS).unlink()
            shutil.rmtree(self.run.path / "attempts" / _SPARE, ignore_errors=True)

    def _on_term(self, *_: object) -> None:
        self.cancelled = self.cancelled or "asked to end"

    def _look(self) -> bool:
        """Follow a directory that was moved; whether the run is to end."""
        try:
            here = Path.cwd()
        except FileNotFoundError:
            self.cancelled = self.cancelled or "its directory was deleted"
            return True
        if here != self.run.path:
            # Members that run already know the old path only: they can write no records any more.
            _report(f"{self.run.path} was moved to {here} during the run")
            try:
                self.run = RunDirectory(here)
            except CastoffError as error:
                self.cancelled = self.cancelled or str(error)
                return True
            for member in self.running:
                member.run = self.run
        if self.cancelled is None and cancel_requested(self.run):
            self.cancelled = "asked to end"
        return self.cancelled is not None

    def _step(self) -> None:
        ends_all, stops, asked = self._look(), stop_requested(self.run), cancelled_members(self.run)
        for member in self.running:
            if ends_all or member.number in asked:
                member.end("cancelled")
        for start in [*self.waiting]:
            if ends_all or stops or start.member in asked:
                self.waiting.remove(start)
                reason = self.cancelled or ("stopped before it began" if stops else "asked to end")
                self._record_unstarted(start, "cancelled", 143, reason)
        while self.waiting and self.free:
            self._begin(self.waiting.pop(0))
        for member in [member for member in self.running if member.step()]:
            self.running.remove(member)
            self._end_leftovers(member)
            self.free.append(member.cores)
            self._finish(member)

    def _begin(self, start: Start) -> None:
        cores = self.free.pop(0)
        try:
            run = self.run.reopened()  # before each start: meanwhile somebody else's may lie there
            where = self.submission.directory
            self.running.append(Member(run, self.plan, where, start, self.lock, self.mark, cores))
        except (OSError, CastoffError) as error:
            self.free.append(cores)
            self._record_unstarted(start, "failed", 126, f"its script could not be started: {error}")

    def _finish(self, member: Member) -> None:
        """See to it that the ending is on record, and that a requeue happens."""
        code = member.process.returncode
        code = 128 - code if code < 0 else code
        attempts, folder = member.attempts, member.folder
        record = ending_of(folder)
        reported = record.ending if record else None
        if member.why is not None and reported not in ("resume", "done", member.why):
            # The script knows only that it was asked to end, and tells why by a clock that may be wrong.
            self._record(folder, member.why, code or 143, None)
        elif reported is None and member.was_cut_short:
            why = f"its script ended with code {code} before its end, as after `exec` or `set -n` in setup"
            self._record(folder, "failed", code or 1, why)
        elif reported is None:
            killer = f"killed by signal {code - 128}" if code > 128 else "unable to write its records"
            self._record(folder, _ENDINGS.get(code, "failed"), code, f"its script was {killer}")
        if (folder / "requeue").exists():
            if stop_requested(self.run):
                self._record(folder, "resume", 75, "asked to stop")
            else:
                self.waiting.insert(0, attempts[-1].next)
        usage = member.meter.usage()
        if usage is not None:
            with contextlib.suppress(OSError):  # a full disk must not end the run
                write(folder / USAGE, usage)
        for attempt in attempts:
            _settle(attempt_folder(self.run, attempt))

    def _end_leftovers(self, member: Member | None) -> None:
        """KILL what a member's script has left behind; None, or no other member: whatever is left."""
        give_up = clock.now() + _GIVE_UP
        scripts = {other.process.pid for other in self.running}
        while True:
            left = [child for pid in children() - scripts if (child := process_of(pid))]
            if member is not None and self.running:
                left = [child for child in left if member.owns(child)]
            if not left:
                return
            if clock.now() > give_up:
                _report(f"cannot end {', '.join(str(child.pid) for child in left)}")
                return
            for child in left:
                # Gone, or another user's: the next look shows it, and in time there is none.
                send([child, *descendants(child)], signal.SIGKILL)
            psutil.wait_procs(left, timeout=0.2)

    def _record(self, folder: Path, ending: str, code: int, reason: str | None) -> None:
        record = Ending(ending, code, int(time.time()), reason)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            write(folder / "ending.json", record)
        except OSError as error:  # must not end the other members
            trouble = f"its records could not be written: {error.strerror}"
            record.reason = f"{reason}; {trouble}" if reason else trouble
            try:
                _use_spare(self.run, folder, encode(record).encode())
            except OSError:
                _report(f"{folder}: {record}")

    def _record_unstarted(self, start: Start, ending: str, code: int, reason: str) -> None:
        folder = attempt_folder(self.run, start)
        self._record(folder, ending, code, reason)
        _settle(folder)

    def _wait_for_others(self) -> None:
        for condition, paths in self.submission.after.items():
            for path in paths:
                try:
                    other = RunDirectory(Path(path))
                except CastoffError as error:
                    self.cancelled = f"{condition} cannot hold any more: {error}"
                    _report(self.cancelled)
                    return
                holds = self.waits(condition, other)
                while not self._look() and not stop_requested(self.run):
                    now = holds()
                    if now:
                        break
                    if now is False:
                        self.cancelled = f"{condition} of {other.id} cannot hold any more"
                        _report(self.cancelled)
                    else:
                        clock.sleep(5 * _POLL)


def _make_spare(run: RunDirectory) -> None:
    """Keep an attempt's folder with room for its ending, should the disk be full when there is one."""
    spare = run.path / "attempts" / _SPARE
    spare.mkdir(mode=0o700, exist_ok=True)
    (spare / "ending.json").write_text(" " * 1000)


def _use_spare(run: RunDirectory, folder: Path, record: bytes) -> None:
    """Record an ending in the room that was kept for it."""
    spare = run.path / "attempts" / _SPARE
    with (spare / "ending.json").open("r+b") as file:
        file.write(record)
        file.truncate()
    if folder.exists():
        (spare / "ending.json").replace(folder / "ending.json")
    else:
        spare.rename(folder)
    with contextlib.suppress(OSError):  # as it was to be expected
        _make_spare(run)


def _report(text: str) -> None:
    """Write to the scheduler's log."""
    with contextlib.suppress(OSError):  # a full disk must not end the run
        print(f"castoff: {text}", flush=True)


def _settle(folder: Path) -> None:
    """Say that an attempt's ending is final and that nothing of it is left running."""
    with contextlib.suppress(OSError):  # then it counts as soon as this scheduler is gone
        (folder / SETTLED).touch(mode=0o600)


def main(waits: Waits) -> None:
    """Take the lock, detach, say the id, and run the job."""
    try:
        named = RunDirectory(Path(sys.argv[1]))  # before links are resolved: none may stand in its place
    except CastoffError as error:
        sys.exit(f"castoff: {error}")
    run = RunDirectory(named.path.resolve())
    lock = _take_lock(run)
    record = run.submission()
    number = len(record.earlier) if record else 0
    if record is None or record.error is not None or taken_submission(run) == number:
        # To begin again would start twice what was submitted once.
        sys.exit(f"castoff: {run.path}: no submission is left to take; `castoff resubmit` makes a new one")
    os.chdir(run.path)  # which tells later where it was moved to
    read_end, write_end = os.pipe()
    if os.fork():
        os.close(write_end)
        with os.fdopen(read_end) as answer:
            line = answer.readline()
        print(line, end="")
        sys.exit(0 if line else 1)
    os.close(read_end)
    os.setsid()
    become_subreaper()
    job, mark = f"local-{os.getpid()}", os.urandom(16).hex()
    try:
        log = os.open(run.log_folder / "scheduler.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _make_spare(run)
        record_owner(run, number, mark)
        # Here, and last: who submitted may be killed, or may not hear us, but this is found.
        record.job = job
        run.write_submission(record)
    except OSError as error:
        sys.exit(f"castoff: {run.path}: cannot be written: {error.strerror}")
    # Let go of the terminal, and of who waits for an answer.
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    with contextlib.suppress(BrokenPipeError):
        os.write(write_end, f"{job}\n".encode())
    os.close(write_end)
    _Scheduler(run, record, lock, mark, waits).main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(0)  # the lock goes with the process: who finds it free finds nothing left running


def _take_lock(run: RunDirectory) -> int:
    """The run's lock, handed down as standard input or taken here: a file descriptor."""
    path = run.path / LOCK
    handed_down = False
    with contextlib.suppress(OSError):
        handed_down = os.path.samestat(os.fstat(0), path.stat())
    try:
        lock = os.dup(0) if handed_down else os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        take(lock)
    except BlockingIOError:
        sys.exit(f"castoff: {run.path}: another scheduler sees to this run already")
    except OSError as error:
        sys.exit(f"castoff: {path}: cannot be locked: {error.strerror}")
    return lock
