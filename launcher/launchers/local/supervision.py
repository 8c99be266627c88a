"""Watches started ranks until they end: their output, their exits, signals, and the end of all their
processes.

One loop handles the ranks' pipes, one pidfd for each rank and one pipe for signals. Linux queues pidfds in
the order in which the processes died, and epoll reports them in that order, so the rank that failed first is
known even if several ranks died within one round of the loop. Without pidfds, ranks that died within one
round are handled in the order of their numbers.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from castoff.launcher.errors import printable
from castoff.launcher.launchers.local.lone_rank import LoneRank
from castoff.launcher.launchers.local.mpi_worlds import MpiWorlds
from castoff.launcher.launchers.local.out_of_memory import oom_kills
from castoff.launcher.launchers.local.processes import GRACE, OrphanReaper, ProcessTree, send
from castoff.launcher.launchers.local.streams import RankLines, RankLog, Sink
from castoff.launcher.text.words import counted

_READ = 32 * 1024  # bytes of one pipe at a time, so that a flood in it does not delay the others
_POLL = 0.05  # seconds between looks at processes whose end causes no event
_SETTLE = 0.3  # seconds in which helpers of a rank that has ended may end by themselves
_GIVE_UP = 5.0  # seconds after which a process that survives KILL is given up
_ECHO = 0.2  # seconds within which a repeated signal is a wrapper's copy (timeout, uv run)
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_QUIET = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)


class Report(NamedTuple):
    """Where the ranks' output, and castoff's messages about the ranks, go."""

    host: str
    output: BinaryIO
    messages: TextIO
    failure_file: Path | None
    log_dir: Path | None


class Rank:
    """One started rank: its process, the reading end of its pipe, and its log; or a second pipe of a rank.

    Not a dataclass: importing `dataclasses` would take a tenth of a start's time.
    """

    def __init__(
        self,
        number: int,
        process: subprocess.Popen[bytes],
        pipe: int | None,
        log: RankLog | None,
        lines: RankLines,
        sink: Sink | None = None,
    ):
        """`sink`: the stream for this rank's lines; None: the stream for all ranks' output."""
        self.number = number
        self.process = process
        self.pipe = pipe
        self.log = log
        self.lines = lines
        self.sink = sink
        self.pidfd: int | None = None


@contextlib.contextmanager
def _caught_signals() -> Iterator[int]:
    """Yield a pipe that receives the number of each signal that arrives; ignored signals stay ignored.

    Signals that are not passed on get handlers too, since the ranks would inherit SIG_IGN from this process.
    """
    pipe, writing = os.pipe()
    os.set_blocking(pipe, False)
    os.set_blocking(writing, False)
    before = {}
    for number in (*_STOPS, *_QUIET):
        # An inherited SIG_IGN for SIGCHLD would have the kernel throw the exit codes away.
        if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
            before[number] = signal.signal(number, lambda *_: None)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield pipe
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        os.close(pipe)
        os.close(writing)


class Supervision:
    """The ranks of one start, from their start to the end of their last descendant."""

    def __init__(self, report: Report, stack: contextlib.ExitStack):
        """Handle this process's signals and descendants until `stack` is closed; may raise OSError."""
        self._report = report
        self._signals = stack.enter_context(_caught_signals())
        self._tree = ProcessTree()
        stack.callback(self._tree.close)
        self.orphan_reaper = OrphanReaper()
        stack.callback(self.orphan_reaper.dismiss)
        self._tree.foreign.add(self.orphan_reaper.pid)
        self._ranks: list[Rank] = []
        self._alive: dict[int, Rank] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._signals, selectors.EVENT_READ, self._take_signals)
        self._output = Sink(report.output, lossy=report.log_dir is not None)
        self._messages = Sink(report.messages, lossy=True)
        self._shown = [self._output]  # the streams for the ranks' output
        self._paused = False
        self._output_lost = False
        self._log_incomplete = False
        self._result = 0
        self._oom_kills = oom_kills()
        self._stop: signal.Signals | None = None
        self._stop_time = 0.0
        self._stopped = False  # a rank died of the signal that was passed on
        self._ending = False  # the ranks' exit codes no longer count
        self._settled: float | None = None  # when the last rank's helpers should have ended
        self._end_time: float | None = None
        self._kill_time: float | None = None
        self._killed: set[int] = set()
        self._looks: LoneRank | MpiWorlds | None = None
        self._worlds: MpiWorlds | None = None
        stack.callback(self._close)

    def report(self, text: str | None) -> None:
        """Print a message after the ranks' earlier output, without waiting long for a reader. None: do
        nothing.
        """
        if text is None:
            return
        self._output.settle(0.5)
        self._messages.put(f"castoff: {printable(text)}\n".encode())
        self._messages.settle(0.5)

    def add(self, rank: Rank) -> None:
        """Watch a rank that has just been started."""
        self.add_pipe(rank)
        self._alive[rank.number] = rank
        self._tree.ranks.add(rank.process.pid)
        self.orphan_reaper.watch(rank.process.pid)
        with contextlib.suppress(OSError, AttributeError):  # a kernel before 5.3: SIGCHLD has to do
            rank.pidfd = os.pidfd_open(rank.process.pid)
            self._selector.register(rank.pidfd, selectors.EVENT_READ, partial(self._collect, rank))

    def watch_ranks(self, world_size: int) -> None:
        """Warn if ranks wait for others that nobody starts, or if each rank is an MPI world of its own."""
        ranks, now = {rank.number: rank.process.pid for rank in self._alive.values()}, time.monotonic()
        if world_size > 1:
            self._looks = self._worlds = MpiWorlds(world_size, ranks, now)
        else:
            self._looks = LoneRank(ranks[0], now)

    def end_after(self, walltime: float) -> None:
        """End what is still running after this many seconds."""
        self._end_time = time.monotonic() + walltime

    def add_agent(self, pid: int) -> None:
        """Watch the agent of which later ranks will be copies; whoever started the agent ends it."""
        self._tree.agent = pid
        self.orphan_reaper.watch(pid)

    def add_pipe(self, rank: Rank) -> None:
        """Pass on output from a pipe."""
        self._ranks.append(rank)
        assert rank.pipe is not None
        os.set_blocking(rank.pipe, False)
        self._listen(rank, rank.pipe)

    def _listen(self, rank: Rank, pipe: int) -> None:
        self._selector.register(pipe, selectors.EVENT_READ, partial(self._read, rank))

    def run(self) -> int:
        """Watch until all processes have ended; return the exit code of the start: that of the first failure,
        or 0.

        The exit code is EX_IOERR (74) if every rank succeeded, but a log lacks a part of its rank's output.
        """
        while not self._step():
            for key, _ in self._selector.select(self._timeout()):
                handle: Callable[[], object] = key.data
                handle()
        for rank in self._ranks:
            self._drain(rank)
            self._close_pipe(rank)
            if rank.log is not None:
                self._report_incomplete(rank.log.close())
        if self._killed:
            killed = counted(len(self._killed), "process", "processes")
            self.report(f"killed {killed} that had not ended on SIGTERM")
        if self._stop is not None and self._stopped:
            self.report(f"stopped by {self._stop.name}")
        self._finish_output()
        return self._result or (os.EX_IOERR if self._log_incomplete else 0)

    def _close(self) -> None:
        """Release all resources; after an error, ranks that are still alive are killed first."""
        deadline = time.monotonic() + _GIVE_UP
        while self._alive and time.monotonic() < deadline:
            send(self._tree.members(), signal.SIGKILL)
            for rank in list(self._alive.values()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    rank.process.wait(_POLL)
                    del self._alive[rank.number]
            self._tree.reap()
        for rank in self._ranks:
            self._close_pipe(rank)
            self._close_pidfd(rank)
        self._selector.close()
        self._output.close()
        self._messages.close()

    # Output

    def _read(self, rank: Rank) -> bool:
        """Pass on a rank's output; return whether there may be more."""
        if rank.pipe is None:
            return False
        try:
            data = os.read(rank.pipe, _READ)
        except BlockingIOError:
            return False
        if data:
            trouble = rank.log.write(data) if rank.log is not None else None
            now = time.monotonic()
            self._show(rank, rank.lines.feed(data, now))
            if self._worlds is not None and rank.number in self._alive:
                self.report(self._worlds.hear(rank.number, now))
            self._report_incomplete(trouble)
        else:
            self._close_pipe(rank)
        return bool(data)

    def _show(self, rank: Rank, lines: bytes) -> None:
        (rank.sink or self._output).put(lines)

    def _report_incomplete(self, trouble: str | None) -> None:
        """Report if a log lacks a part of its rank's output."""
        self._log_incomplete = self._log_incomplete or trouble is not None
        self.report(trouble)

    def _drain(self, rank: Rank) -> None:
        """Read what a dead rank has left in its pipe, up to a limit, because a daemon may continue to
        write.
        """
        for _ in range(1024 * 1024 // _READ):
            if not self._read(rank):
                return

    def _close_pipe(self, rank: Rank) -> None:
        if rank.pipe is None:
            return
        pipe, rank.pipe = rank.pipe, None
        if not self._paused:
            self._selector.unregister(pipe)
        os.close(pipe)
        self._show(rank, rank.lines.flush())

    def _close_pidfd(self, rank: Rank) -> None:
        if rank.pidfd is not None:
            self._selector.unregister(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = None

    def _regulate(self, now: float) -> None:
        """Show lines that have been unfinished for too long; make the ranks wait for a slow reader."""
        for rank in self._ranks:
            due = rank.lines.due()
            if due is not None and due <= now:
                self._show(rank, rank.lines.flush())
        self._report_lost_output()
        full = any(sink.full() for sink in self._shown)
        if full != self._paused:
            self._paused = full
            for rank in self._ranks:
                if rank.pipe is not None and full:
                    self._selector.unregister(rank.pipe)
                elif rank.pipe is not None:
                    self._listen(rank, rank.pipe)

    def _report_lost_output(self) -> None:
        if self._output.error is not None and not self._output_lost:
            self._output_lost = True
            logs = self._report.log_dir
            rest = f"all of it is in the logs in {logs}" if logs else "the rest of it is lost"
            self.report(f"cannot write the ranks' output here ({self._output.error.strerror}): {rest}")

    def _finish_output(self) -> None:
        """Wait for the reader of the output: if there are logs, as long as it reads; otherwise until a signal
        arrives.
        """
        for sink in self._shown:
            while not sink.settle(_POLL):
                if self._report.log_dir is not None and sink.stalled(2.0):
                    break
                if {*self._signal_numbers()} & {signal.SIGINT, signal.SIGTERM}:
                    break
        self._output.close()
        self._report_lost_output()
        if self._output.skipped:
            self.report(f"{self._output.skipped} lines of output were not shown, because nothing read them")

    # Endings

    def _collect(self, rank: Rank) -> None:
        returncode = rank.process.poll()
        if returncode is None or rank.number not in self._alive:
            return
        del self._alive[rank.number]
        self._close_pidfd(rank)
        self._drain(rank)
        if self._worlds is not None:
            self.report(self._worlds.look(time.monotonic()))
            self._worlds = None
        self._judge(rank, returncode)

    def _judge(self, rank: Rank, returncode: int) -> None:
        """Decide what a rank's exit means for the other ranks; a negative `returncode` is minus the number of
        a signal.
        """
        if returncode == 0:
            self._record_end(rank)
        if returncode == 0 or self._ending:
            return
        if returncode == -signal.SIGTERM and self._stop is None:
            # Somebody may have sent TERM to all of the job's processes; then the signal reaches this process,
            # too.
            with selectors.DefaultSelector() as waiter:
                waiter.register(self._signals, selectors.EVENT_READ)
                waiter.select(0.1)
            self._take_signals()
        code = returncode if returncode > 0 else 128 - returncode
        if self._stop is not None and code in (128 + signal.SIGTERM, 128 + self._stop):
            # The others may still be saving their state, each at its own pace: let them.
            self._result = 128 + self._stop
            self._stopped = True
            return
        if not self._stopped:
            self._result = code
            names = {Signal.value: Signal.name for Signal in signal.Signals}
            killer = names.get(-returncode, f"SIG{-returncode}") if returncode < 0 else None
            self._report_failure(rank, code, killer)
        if not self._ending:
            self._ending = True
            self._end_all()

    def _record_end(self, rank: Rank) -> None:
        """Record a rank's exit for templates/machinery/hang.sh: if the other ranks hang, this rank is not
        among them.
        """
        if self._report.failure_file is not None:
            with contextlib.suppress(OSError):  # only jobs that detect hangs have this folder
                (self._report.failure_file.with_name("ended") / str(rank.number)).touch()

    def _report_failure(self, rank: Rank, code: int, killer: str | None) -> None:
        from castoff.launcher.launchers.local import first_failure  # imported late, since most jobs succeed
        from castoff.launcher.text.failure import OUT_OF_MEMORY, failure_words

        record = {"rank": rank.number, "host": self._report.host, "code": code, "signal": killer}
        if killer == "SIGKILL" and oom_kills() > self._oom_kills:
            record["reason"] = OUT_OF_MEMORY
        first, trouble = first_failure.recorded(self._report.failure_file, {**record, "time": time.time()})
        self.report(trouble)
        log = f"; its log: {rank.log.path}" if rank.log is not None else ""
        self.report(f"{failure_words(first)}{log}")

    def _end_all(self) -> int:
        """Send TERM to all processes of the ranks, and KILL later; return the number of processes."""
        members = self._tree.members()
        send(members, signal.SIGTERM)
        self._kill_time = time.monotonic() + GRACE
        return len(members)

    def _signal_numbers(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._signals, 4096)
        return b""

    def _take_signals(self) -> None:
        for number in self._signal_numbers():
            if number in _STOPS:
                self._stop_requested(signal.Signals(number))
        for rank in list(self._alive.values()):
            if rank.pidfd is None:
                self._collect(rank)
        self._tree.reap()

    def _stop_requested(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if self._stop is None or (self._stop == signal.SIGHUP and number != signal.SIGHUP):
            # A session that ends sends HUP and then TERM; that TERM is not a second request.
            self._stop, self._stop_time = number, now
            if self._alive and not self._ending:
                for rank in self._alive.values():
                    # Only the program itself gets the signal: the program decides what to send to its
                    # children.
                    os.kill(rank.process.pid, signal.SIGTERM)
                self.report(f"{number.name}: asked the ranks to stop (SIGTERM); a second one kills them")
        elif number != signal.SIGHUP and now - self._stop_time > _ECHO:
            self._stop_requested_again(now)

    def _stop_requested_again(self, now: float) -> None:
        if self._alive and not self._ending and self._stop:
            self._ending = self._stopped = True
            self._result = 128 + self._stop
        self._kill_time = min(self._kill_time or now, now)

    def _end_at_walltime(self) -> None:
        self._end_time = None
        if self._alive and not self._ending:
            self._ending, self._result = True, 128 + signal.SIGTERM
            self.report("the walltime is over: ending the ranks")
            self._end_all()

    # Steps

    def _step(self) -> bool:
        """Do what is due; return whether all processes have ended."""
        now = time.monotonic()
        self._regulate(now)
        if self._looks is not None and (due := self._looks.due) is not None and due <= now:
            self.report(self._looks.look(now))
        if self._end_time is not None and now >= self._end_time:
            self._end_at_walltime()
        if not self._alive:
            if not self._tree.reap():
                return True
            self._settled = self._settled or now + _SETTLE
            if now >= self._settled and self._kill_time is None and (count := self._end_all()):
                self.report(f"ending {counted(count, 'process', 'processes')} that outlived the ranks")
        if self._kill_time is None or now < self._kill_time:
            return False
        targets = self._tree.members()
        pids = {process.pid for process in targets}
        self._killed |= pids - self._tree.copies  # a copy and its client count once
        send(targets, signal.SIGKILL)
        if now < self._kill_time + _GIVE_UP:
            return False
        left = ", ".join(str(process.pid) for process in targets)
        self.report(f"gave up on processes that KILL does not end: {left}")
        if self._report.failure_file is not None:  # the script then starts no further attempt
            with contextlib.suppress(OSError):
                self._report.failure_file.with_name("left").write_text(f"{left}\n")
        return True

    def _timeout(self) -> float | None:
        if not self._alive:
            return _POLL
        now = time.monotonic()
        waits = [due - now for rank in self._ranks if (due := rank.lines.due()) is not None]
        if self._end_time is not None:
            waits.append(self._end_time - now)
        if self._kill_time is not None:
            waits.append(self._kill_time - now if now < self._kill_time else _POLL)
        if self._looks is not None and self._looks.due is not None:
            waits.append(self._looks.due - now)
        if self._paused:
            waits.append(_POLL)
        return max(0.0, min(waits)) if waits else None
