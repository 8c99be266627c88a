"""A run in the foreground: its script runs here and now, on the hosts of an allocation.

It is the script that a submission would send. This process does what a scheduler does for a batch job:
it keeps the log, asks for a stop in time, passes signals on, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, BinaryIO, TextIO

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.planning.render import FILTERS, render
from launcher.runs.records import Ending, Submission, read, write
from launcher.runs.run import AGAIN, SETTLED, Run, said_again
from launcher.schedulers.allocation import Allocation
from launcher.schedulers.local.control import cancel_asked, introduce
from launcher.starters.local.processes import GRACE, Family, Guardian, send
from launcher.starters.local.streams import RankLines, RankLog, Sink
from launcher.starters.local.supervision import Signals
from launcher.submission.allocation import plan_in, script_environment
from launcher.submission.submit import recorded, sealed, working_directory

_POLL = 0.5  # seconds between looks at what no signal tells: the deadline, a wish from another host
_ENDING_POLL = 0.05  # the same when all should soon be over
_SETTLE = 0.3  # seconds in which what the script has left running may end by itself
_GIVE_UP = 5.0  # seconds after KILL after which a process counts as one that cannot be ended
_ECHO = 0.2  # seconds within which a repeated signal is a wrapper's copy (timeout, uv run)
_STALLED = 2.0  # seconds without a reader after which the end of the output is left to the log
_READ = 32 * 1024  # bytes of one pipe at a time


def run_in_foreground(
    spec: JobSpec,
    site: Site,
    allocation: Allocation,
    *,
    runs_dir: Path | None,
    environ: Mapping[str, str],
    output: BinaryIO,
    messages: TextIO,
) -> int:
    """Run a job on an allocation's hosts, show what its script writes, and return the job's code.

    The code is 128 + N where signal N to this process ended the job, but 75 where the program had saved
    and said `again` by then. INT, TERM and HUP ask the ranks to stop, and a second one kills them. Call
    it in the main thread of a process that starts nothing else meanwhile.

    Raises:
        InvalidInput: the job cannot run there.
        CastoffError: its run directory cannot be made, or its script cannot be started.
    """
    decided = plan_in(allocation, spec, site, environ)
    script = render(decided)
    directory = working_directory()
    # No node-hours: they are the allocation's, whatever runs in it.
    record = Submission(
        scheduler=decided.scheduler, directory=directory, time=time.time(), job=allocation.job
    )
    with contextlib.ExitStack() as stack:
        made = recorded(spec, decided, script, record, runs_dir=runs_dir, environ=environ)
        draft = stack.enter_context(made)
        run, seal = draft.final, sealed(draft, script)
        introduce(run, 0)
        environment = script_environment(
            allocation,
            decided.nodes,
            environ,
            run=run.path,
            directory=directory,
        )
        attempt = _Attempt(run, stack, output, messages)
        attempt.say(f"{allocation}: {FILTERS['layout_words'](decided)}, started by {decided.starter}")
        attempt.say(f"run {run.id}: logs are in {run.logs / '0.0'}, and the first of them is shown here")
        if (end := allocation.end(environment)) is not None:
            attempt.stop_before(end, decided.grace)
        seal.check()
        return attempt.run([shlex.split(decided.shell)[0], str(run.script)], environment)


class _Attempt:
    """The one attempt of such a run: from the start of its script to the end of all that it started."""

    def __init__(self, run: Run, stack: contextlib.ExitStack, output: BinaryIO, messages: TextIO):
        self._run = run
        self._folder = run.path / "attempts" / "0.0"
        self._stack = stack
        self._signals = stack.enter_context(Signals())
        self._family = Family()
        stack.callback(self._family.close)
        self._log = RankLog(run.script_log())
        stack.callback(self._log.close)
        self._output = Sink(output, lossy=True, on_change=self._signals.nudge)
        self._messages = Sink(messages, lossy=True, on_change=self._signals.nudge)
        # On a terminal whole lines, as `castoff logs` shows them; else what is written, as it is written.
        self._lines = {
            sink: RankLines(b"", terminal=True)
            for sink, stream in ((self._output, output), (self._messages, messages))
            if stream.isatty()
        }
        self._pipes: dict[IO[bytes], Sink] = {}
        self._stop_time: float | None = None  # seconds since 1970
        self._asked: signal.Signals | None = None
        self._asked_time = 0.0
        self._over_time: float | None = None
        self._kill_time: float | None = None

    def say(self, text: str) -> None:
        """Tell the user, after what the script wrote before; never waits long for a reader."""
        self._output.settle(0.5)
        self._messages.put(f"castoff: {text}\n".encode(errors="replace"))

    def stop_before(self, end: float, grace: int) -> None:
        """Ask the program to stop `grace` seconds before `end` (seconds since 1970), as a batch job is."""
        self._stop_time = end - grace
        left = end - time.time()
        if left <= grace:
            self.say(
                f"{max(left, 0):.0f} s are left here, but grace is {grace} s, so the program is asked to "
                f"stop at once; for less: --grace {max(int(left) // 10, 1)}s"
            )

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Run the script to its end; the code of the whole."""
        process = self._start(command, environment)
        while not self._step(process):
            self._look(_POLL if process.poll() is None and self._kill_time is None else _ENDING_POLL, process)
        for pipe in list(self._pipes):
            self._copy(pipe, pieces=1024 * 1024 // _READ)  # bounded: somebody else may hold the other end
        for sink, lines in self._lines.items():
            sink.put(lines.flush())
        code = self._code(process.returncode)
        with contextlib.suppress(OSError):  # then it counts as soon as this process is gone
            (self._folder / SETTLED).touch(mode=0o600)
        self._finish_output()
        return code

    def _start(self, command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        guardian = Guardian(GRACE)
        self._family.leave_out(guardian.pid)
        self._stack.callback(guardian.dismiss)
        try:
            process = subprocess.Popen(
                command,
                env={**environment, **guardian.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is for us, and we pass it on in order
            )
        except OSError as error:
            self._record("failed", 126, f"its script could not be started: {error.strerror}")
            raise CastoffError(f"{shlex.join(command)} could not be started: {error.strerror}") from error
        self._stack.callback(self._abandon, process)
        guardian.watch(process.pid)
        self._family.add_rank(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = {process.stdout: self._output, process.stderr: self._messages}
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            self._stack.callback(pipe.close)
        return process

    def _abandon(self, process: subprocess.Popen[bytes]) -> None:
        """After an error: leave nothing running."""
        if process.poll() is None:
            send(self._family.members(), signal.SIGKILL)
            process.wait()

    def _look(self, seconds: float, process: subprocess.Popen[bytes]) -> None:
        """Wait for output or a signal, and take it."""
        poller = select.poll()
        poller.register(self._signals.pipe, select.POLLIN)
        ready = [pipe for pipe, sink in self._pipes.items() if not sink.full()]
        for pipe in ready:
            poller.register(pipe.fileno(), select.POLLIN)
        poller.poll(seconds * 1000)
        for pipe in ready:
            self._copy(pipe)
        for number in self._signals.take():
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._asked_to_stop(signal.Signals(number), process)

    def _copy(self, pipe: IO[bytes], pieces: int = 1) -> None:
        """Pass on what has come out of a pipe, up to so many pieces."""
        sink = self._pipes[pipe]
        for _ in range(pieces):
            try:
                data = os.read(pipe.fileno(), _READ)
            except BlockingIOError:
                return
            lines = self._lines.get(sink)
            if not data:
                del self._pipes[pipe]
                if lines is not None:
                    sink.put(lines.flush())
                return
            trouble = self._log.write(data)
            sink.put(data if lines is None else lines.feed(data, time.monotonic()))
            if trouble:
                self.say(trouble)

    def _asked_to_stop(self, number: signal.Signals, process: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if self._asked is None or (self._asked == signal.SIGHUP and number != signal.SIGHUP):
            # TERM after HUP is how a session ends, not a second wish.
            self._asked, self._asked_time = number, now
            if process.poll() is None:
                process.terminate()  # the script passes it on to the ranks
                self.say(f"{number.name}: asked the ranks to stop; once more kills them")
        elif number != signal.SIGHUP and now - self._asked_time > _ECHO:
            # srun kills its tasks, on every host, when it gets TERM; KILL would leave them running.
            # The script itself then sees the end of its starter, and writes its records.
            send([one for one in self._family.members() if one.pid != process.pid], signal.SIGTERM)
            self._kill_time = min(self._kill_time or now + GRACE, now + GRACE)

    def _step(self, process: subprocess.Popen[bytes]) -> bool:
        """Do what is due; whether all is over."""
        now = time.monotonic()
        for sink, lines in self._lines.items():
            if (due := lines.due()) is not None and due <= now:
                sink.put(lines.flush())
        if self._stop_time is not None and time.time() >= self._stop_time and self._folder.is_dir():
            (self._folder / "stop").touch()
            self._stop_time = None
        if self._asked is None and cancel_asked(self._run):
            self._asked_to_stop(signal.SIGTERM, process)
        if process.poll() is not None:
            if not self._family.bury():
                return True
            self._over_time = self._over_time or now
            if now > self._over_time + _SETTLE and self._kill_time is None:
                send(self._family.members(), signal.SIGTERM)
                self._kill_time = now + GRACE
        if self._kill_time is None or now < self._kill_time:
            return False
        left = self._family.members()
        send(left, signal.SIGKILL)
        if now < self._kill_time + _GIVE_UP:
            return False
        self.say(f"gave up on processes that KILL does not end: {', '.join(str(one.pid) for one in left)}")
        return True

    def _code(self, returncode: int | None) -> int:
        """The script's code, or that of the signal that ended it; sees to it that an ending is on record."""
        code = 137 if returncode is None else returncode if returncode >= 0 else 128 - returncode
        record = read(self._folder / "ending.json", Ending)
        ending = record.ending if record else None
        if ending is None:
            ending = "failed" if self._asked is None else "cancelled"
            killer = f"killed by signal {code - 128}" if code > 128 else "unable to write its records"
            self._record(ending, code or 1, f"its script was {killer}")
        if self._asked is not None and ending == "cancelled":
            return AGAIN if said_again(self._folder / "outcome") else 128 + self._asked
        return code

    def _record(self, ending: str, code: int, reason: str) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write(self._folder / "ending.json", Ending(ending, code, int(time.time()), reason))
        except OSError as error:
            self.say(f"{self._folder}: {ending} could not be recorded: {error.strerror}")

    def _finish_output(self) -> None:
        """Wait for the readers, as long as they read."""
        for sink in (self._output, self._messages):
            while not sink.settle(_POLL) and not sink.stalled(_STALLED):
                if {*self._signals.take()} & {signal.SIGINT, signal.SIGTERM}:
                    break
        self._output.close()
        if self._output.error is not None:
            self.say(f"cannot write here ({self._output.error.strerror}): all of it is in {self._log.path}")
        self._messages.settle(_POLL)
        self._messages.close()
