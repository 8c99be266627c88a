"""The local scheduler: runs the members of one job on this machine, detached from its terminal.

`python -m castoff.launcher.cli.local_scheduler RUN_DIR` prints the job's id once it holds the run's lock, and
continues in the background. The lock shows whether the local scheduler is alive, whatever the clock or the
process table show: `castoff submit` takes the lock first and passes it on as standard input, and the scripts
and their ranks inherit it. Like Slurm or PBS on a cluster, the local scheduler waits for other runs, starts
the script of each member, ends the script at its walltime, starts it again if the script asks for that, and
records the ending of a script that could not do so itself.

Each submission is taken once. If the local scheduler is killed, either it has started nothing, or its scripts
hold the lock until they end.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection
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
from castoff.launcher.launchers.local.this_host import masked
from castoff.launcher.process.locks import take
from castoff.launcher.ranks.visible import shares_of
from castoff.launcher.runs.owner import record_owner, taken_submission
from castoff.launcher.runs.records import Ending, Facts, Submission, begins, encode, ending_of, write
from castoff.launcher.runs.run import LOCK, SETTLED, USAGE, RunDirectory, stop_requested
from castoff.launcher.runs.secrets import SECRETS
from castoff.launcher.schedulers.local.control import cancel_requested, cancelled_members
from castoff.launcher.schedulers.local.member import Member, Share, Start, attempt_folder, inherited

Waits = Callable[[str, RunDirectory, int | None], Callable[[], bool | None]]
"""Takes a condition of `after`, the run that the condition is about, and with `aftercorr` a member; returns a
function that reports whether the condition holds: False if it never will, None if it does not yet.
"""

_PAIRED = "aftercorr"
"""The condition that each member of an array waits for by itself."""

_POLL = 0.1
_GIVE_UP = 5.0
"""Seconds after which castoff gives up on a process that survives KILL."""

_ENDINGS = {0: "done", 75: "walltime", 143: "cancelled"}
"""The ending for a script's exit code if the script could not record an ending; for any other code,
failed.
"""

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
        self.free = _shares(self.plan, min(max_concurrent, len(due)))
        """A share of this machine for each additional member that could run now."""
        self.running: list[Member] = []
        self.cancelled: str | None = None
        """Why the run is being ended early; None: it is not being ended."""
        self._pairs_looked = -math.inf
        """When members that wait for those of another array were last checked."""

    def main(self) -> None:
        """Run all members until they have ended; whatever happens, leave no process running."""
        signal.signal(signal.SIGTERM, self._on_term)
        # Handle the signal instead of ignoring it: the scripts would inherit an ignored signal.
        signal.signal(signal.SIGHUP, lambda *_: None)
        for number in _DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        try:
            self._wait_for_others()
            while self.waiting or self.running:
                self._step()
                if self.waiting or self.running:
                    _await_end([member.process.pid for member in self.running], _POLL)
        finally:
            for member in self.running:
                member.process.kill()
                member.process.wait()
            self.running.clear()
            self._end_leftovers(None)
            with contextlib.suppress(OSError):  # the file may be missing
                (self.run.path / SECRETS).unlink()
            shutil.rmtree(self.run.path / "attempts" / _SPARE, ignore_errors=True)

    def _on_term(self, *_: object) -> None:
        self.cancelled = self.cancelled or "asked to end"

    def _look(self) -> bool:
        """Check whether the run directory was moved or deleted; return whether the run is to end."""
        try:
            path = Path.cwd()
        except FileNotFoundError:
            self.cancelled = self.cancelled or "its directory was deleted"
            return True
        if path != self.run.path:
            # Running members know only the old path, so they can no longer write records.
            _report(f"{self.run.path} was moved to {path} during the run")
            try:
                self.run = RunDirectory(path)
            except CastoffError as error:
                self.cancelled = self.cancelled or str(error)
                return True
            for member in self.running:
                member.run = self.run
        if self.cancelled is None and cancel_requested(self.run):
            self.cancelled = "asked to end"
        return self.cancelled is not None

    def _step(self) -> None:
        ends_all, stops, cancelled = self._look(), stop_requested(self.run), cancelled_members(self.run)
        for member in self.running:
            if ends_all or member.number in cancelled:
                member.end("cancelled")
        for member in [member for member in self.running if member.step()]:
            self.running.remove(member)
            self._end_leftovers(member)
            self.free.append(member.share)
            self._finish(member)
        for start in [*self.waiting]:
            if ends_all or stops or start.member in cancelled:
                self.waiting.remove(start)
                reason = self.cancelled or ("stopped before it began" if stops else "asked to end")
                self._record_unstarted(start, "cancelled", 143, reason)
        if _PAIRED in self.submission.after:
            for start in self._paired()[: len(self.free)]:
                self.waiting.remove(start)
                self._begin(start)
        while self.waiting and self.free and _PAIRED not in self.submission.after:
            self._begin(self.waiting.pop(0))

    def _begin(self, start: Start) -> None:
        share = self.free.pop(0)
        try:
            run = self.run.reopened()  # checked each time: another user's folder may have replaced it
            directory = self.submission.directory
            self.running.append(Member(run, self.plan, directory, start, self.lock, self.mark, share))
        except (OSError, CastoffError) as error:
            self.free.append(share)
            self._record_unstarted(start, "failed", 126, f"its script could not be started: {error}")

    def _finish(self, member: Member) -> None:
        """Make sure that a member's ending is recorded, and requeue it if its script asked for that."""
        code = member.process.returncode
        code = 128 - code if code < 0 else code
        attempts, folder = member.attempts, member.folder
        record = ending_of(folder)
        reported = record.ending if record else None
        if member.why is not None and reported not in ("resume", "done", member.why):
            # The script knows only that it was asked to end; it guesses the reason by a clock that may be
            # wrong.
            self._record(folder, member.why, code or 143, None)
        elif reported is None and member.was_cut_short:
            reason = f"its script ended with code {code} before its end, as after `exec` or `set -n` in setup"
            self._record(folder, "failed", code or 1, reason)
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
        """KILL the processes that a member's script has left behind; if no other member runs, all processes
        of the run.
        """
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
                # Errors are ignored: the next round handles processes that are left, until `give_up`.
                send([child, *descendants(child)], signal.SIGKILL)
            psutil.wait_procs(left, timeout=0.2)

    def _record(self, folder: Path, ending: str, code: int, reason: str | None) -> None:
        record = Ending(ending, code, int(time.time()), reason)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            write(folder / "ending.json", record)
        except OSError as error:  # an error must not end the other members
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

    def _paired(self) -> list[Start]:
        """The waiting members whose partners in other arrays are done; those of which a partner failed are
        recorded as cancelled.
        """
        if clock.now() - self._pairs_looked < 5 * _POLL:
            return []
        self._pairs_looked = clock.now()
        ready = []
        others = [RunDirectory(Path(path)) for path in self.submission.after[_PAIRED]]
        for start in [*self.waiting]:
            holds = [self.waits(_PAIRED, other, start.member)() for other in others]
            if start.attempt > start.first or all(holds):
                ready.append(start)
            elif False in holds:
                self.waiting.remove(start)
                other = others[holds.index(False)]
                reason = f"{_PAIRED} of member {start.member} of {other.id} cannot hold any more"
                self._record_unstarted(start, "cancelled", 143, reason)
        return ready

    def _wait_for_others(self) -> None:
        for condition, paths in self.submission.after.items():
            for path in paths if condition != _PAIRED else ():
                try:
                    other = RunDirectory(Path(path))
                except CastoffError as error:
                    self.cancelled = f"{condition} cannot hold any more: {error}"
                    _report(self.cancelled)
                    return
                holds = self.waits(condition, other, None)
                while not self._look() and not stop_requested(self.run):
                    met = holds()
                    if met:
                        break
                    if met is False:
                        self.cancelled = f"{condition} of {other.id} cannot hold any more"
                        _report(self.cancelled)
                    else:
                        clock.sleep(5 * _POLL)


def _shares(plan: Facts, most: int) -> list[Share]:
    """Divide this machine's cores and devices among as many members as fit at the same time."""
    ranks, environ, devices = plan.ranks or 1, inherited(plan), []
    if plan.devices_per_rank:
        devices = shares_of({**environ, **masked(environ)}, most, ranks * plan.devices_per_rank)
        most = min(most, len(devices) or most)
    cores = shares(most, ranks * (plan.cores_per_rank or 1))
    return [Share(one, devices[place] if devices else {}) for place, one in enumerate(cores)]


def _await_end(pids: Collection[int], seconds: float) -> None:
    """Wait until one of these children ends, but not longer than this."""
    with contextlib.ExitStack() as stack:
        ends = select.poll()
        try:
            for pid in pids:
                pidfd = os.pidfd_open(pid)
                stack.callback(os.close, pidfd)
                ends.register(pidfd, select.POLLIN)
        except OSError:  # before Linux 5.3; or there are too many files
            clock.sleep(seconds)
        else:
            ends.poll(seconds * 1000)


def _make_spare(run: RunDirectory) -> None:
    """Create an attempt's folder with space for the record of the ending, in case the disk is full by
    then.
    """
    spare = run.path / "attempts" / _SPARE
    spare.mkdir(mode=0o700, exist_ok=True)
    (spare / "ending.json").write_text(" " * 1000)


def _use_spare(run: RunDirectory, folder: Path, record: bytes) -> None:
    """Record an ending in the folder that was created for it."""
    spare = run.path / "attempts" / _SPARE
    with (spare / "ending.json").open("r+b") as file:
        file.write(record)
        file.truncate()
    if folder.exists():
        (spare / "ending.json").replace(folder / "ending.json")
    else:
        spare.rename(folder)
    with contextlib.suppress(OSError):  # the disk is probably full
        _make_spare(run)


def _report(text: str) -> None:
    """Write to the scheduler's log."""
    with contextlib.suppress(OSError):  # a full disk must not end the run
        print(f"castoff: {text}", flush=True)


def _settle(folder: Path) -> None:
    """Mark an attempt's ending as final, since no process of the attempt is left."""
    with contextlib.suppress(OSError):  # without the mark, the ending is final once this scheduler is gone
        (folder / SETTLED).touch(mode=0o600)


def main(waits: Waits) -> None:
    """Take the lock, detach, print the id, and run the job."""
    try:
        named = RunDirectory(Path(sys.argv[1]))  # before links are resolved, since a link is refused
    except CastoffError as error:
        sys.exit(f"castoff: {error}")
    run = RunDirectory(named.path.resolve())
    lock = _take_lock(run)
    record = run.submission()
    number = len(record.earlier) if record else 0
    if record is None or record.error is not None or taken_submission(run) == number:
        # Another start would run one submission twice.
        sys.exit(f"castoff: {run.path}: its submission was taken already; `castoff resubmit` makes a new one")
    os.chdir(run.path)  # the working directory follows if the run directory is moved
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
        # Record the id last, in this process: the submitting process may be killed before it can do so.
        record.job = job
        run.write_submission(record)
    except OSError as error:
        sys.exit(f"castoff: {run.path}: cannot be written: {error.strerror}")
    # Detach from the terminal, and from the process that waits for an answer.
    for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    with contextlib.suppress(BrokenPipeError):
        os.write(write_end, f"{job}\n".encode())
    os.close(write_end)
    _Scheduler(run, record, lock, mark, waits).main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(0)  # this frees the lock, which shows that no process of the run is running


def _take_lock(run: RunDirectory) -> int:
    """Return the file descriptor of the run's lock, which is standard input, or which this process takes."""
    path = run.path / LOCK
    handed_down = False
    with contextlib.suppress(OSError):
        handed_down = os.path.samestat(os.fstat(0), path.stat())
    try:
        lock = os.dup(0) if handed_down else os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        take(lock)
    except BlockingIOError:
        sys.exit(f"castoff: {run.path}: another local scheduler already runs it")
    except OSError as error:
        sys.exit(f"castoff: {path}: cannot be locked: {error.strerror}")
    return lock
