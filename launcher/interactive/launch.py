"""Runs a job in the foreground: its script runs immediately, on the hosts of an allocation.

The script is the one that a submission would send. This process does what a scheduler does for a batch job:
it writes the log, requests a stop before the end, passes signals on, and ends all processes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, TextIO

from castoff.launcher import clock
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.interactive.in_allocation import plan_in
from castoff.launcher.launchers.base import Launcher
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.launchers.local.processes import GRACE, send
from castoff.launcher.launchers.local.streams import RankLines, RankLog
from castoff.launcher.launchers.local.supervision import Rank, Report, Supervision
from castoff.launcher.planning.render import FILTERS, rendered
from castoff.launcher.preflight.syntax import check_syntax
from castoff.launcher.preflight.warnings import report_shell_words
from castoff.launcher.runs.owner import record_owner
from castoff.launcher.runs.records import Ending, Submission, read, write
from castoff.launcher.runs.run import RESUME, SETTLED, RunDirectory, wants_resume
from castoff.launcher.schedulers.base_allocation import Allocation
from castoff.launcher.schedulers.local.control import cancel_requested
from castoff.launcher.submission.submit import recorded, working_directory

_BETWEEN = 0.3  # seconds in which flux run notices an INT; two within 2 s cancel its job
_CANCELLING = 5.0  # seconds after which Flux kills a cancelled job
_POLL = 0.5  # seconds between checks of the deadline, and of cancel requests from other hosts


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
    """Run a job on an allocation's hosts, show its output, and return its exit code.

    INT, TERM and HUP ask the ranks to stop, and a second one kills them. If signal N thus ended the job, the
    code is 128 + N, or 75 if the program has reported `resume`. Call this in the main thread of a process
    that starts no others meanwhile.

    Raises:
        InvalidInput: the job cannot run there.
        CastoffError: its run directory cannot be made, or its script cannot be started.
    """
    decided, scheduler = plan_in(allocation, spec, site, environ)
    script = rendered(decided, scheduler)
    check_syntax(decided, script, spec)
    report_shell_words(spec)
    directory = working_directory()
    # Omit node-hours: the allocation costs the same, whatever runs in it.
    record = Submission(
        scheduler=decided.scheduler, directory=directory, time=time.time(), job=allocation.job
    )
    with contextlib.ExitStack() as stack:
        made = recorded(spec, decided, script.text, record, runs_dir=runs_dir, environ=environ)
        run = stack.enter_context(made).final
        record_owner(run, 0)
        environment = allocation.environment(decided.nodes, environ, run.path, directory)
        attempt = _Attempt(run, stack, output, messages, LAUNCHERS[decided.launcher])
        attempt.report(f"{allocation}: {FILTERS['layout_words'](decided)}, started by {decided.launcher}")
        attempt.report(
            f"run {run.id}: logs are in {run.log_folder / '0.0'}, and the first of them is shown here"
        )
        if (end := allocation.end(environment)) is not None:
            attempt.stop_before(end, decided.grace)
        attempt.start([shlex.split(decided.shell)[0], str(run.script)], environment)
        return attempt.run()


class _AsItIs(RankLines):
    """Output that is not changed. On a terminal it is split into whole lines, as in `castoff logs`."""

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the data unchanged."""
        return data


class _Attempt(Supervision):
    """The only attempt of the run, from the start of its script to the end of its last process."""

    def __init__(
        self,
        run: RunDirectory,
        stack: contextlib.ExitStack,
        output: BinaryIO,
        messages: TextIO,
        launcher: Launcher,
    ):
        super().__init__(Report("", output, messages, None, run.log_folder), stack)
        self._shown.append(self._messages)
        self._run = run
        self._stack = stack
        self._launcher = launcher
        self._folder = run.path / "attempts" / "0.0"
        self._script: subprocess.Popen[bytes] | None = None
        self._stop_at: float | None = None  # seconds since 1970

    def stop_before(self, end: float, grace: int) -> None:
        """Ask the program to stop `grace` seconds before `end` (seconds since 1970), as in a batch job."""
        self._stop_at = end - grace
        left = end - time.time()
        if left <= grace:
            self.report(
                f"{max(left, 0):.0f} s are left here, but grace is {grace} s, so the program is asked to "
                f"stop at once; for a shorter grace: --grace {max(int(left) // 10, 1)}s"
            )

    def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start the script. Raises CastoffError if it cannot be started."""
        log = RankLog(self._run.script_log())
        self._stack.callback(log.close)
        (out, stdout), (err, stderr) = os.pipe(), os.pipe()
        try:
            self._script = process = subprocess.Popen(
                command,
                env={**environment, **self.orphan_reaper.environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # so that Ctrl-C reaches only this process, which passes it on
            )
        except OSError as error:
            self._record("failed", 126, f"its script could not be started: {error.strerror}")
            raise CastoffError(f"{shlex.join(command)} could not be started: {error.strerror}") from error
        finally:
            os.close(stdout)
            os.close(stderr)
        for watch, pipe, sink, terminal in (
            (self.add, out, self._output, self._report.output.isatty()),
            (self.add_pipe, err, self._messages, self._report.messages.isatty()),
        ):
            lines = (RankLines if terminal else _AsItIs)(b"", terminal=True)
            watch(Rank(0, process, pipe, log, lines, sink))

    def _judge(self, rank: Rank, returncode: int) -> None:
        """Do nothing: `_code` records how the script ended."""

    def _stop_requested_again(self, now: float) -> None:
        # srun kills its tasks, on every host, when it gets TERM; KILL would leave them running.
        # The script itself then sees the end of its launcher, and writes its records.
        script = self._script and self._script.pid
        others = [member for member in self._tree.members() if member.pid != script]
        grace = GRACE
        if self._launcher.cancels_on_int:
            for _ in range(3):  # two INTs are needed, and two may be received as one
                send(others, signal.SIGINT)
                clock.sleep(_BETWEEN)
            grace += _CANCELLING
        else:
            send(others, signal.SIGTERM)
        self._kill_time = min(self._kill_time or now + grace, now + grace)

    def _timeout(self) -> float:
        due = super()._timeout()
        return _POLL if due is None else min(_POLL, due)

    def _step(self) -> bool:
        if self._stop_at is not None and time.time() >= self._stop_at and self._folder.is_dir():
            (self._folder / "stop").touch()
            self._stop_at = None
        if self._stop is None and cancel_requested(self._run):
            self._stop_requested(signal.SIGTERM)
        return super()._step()

    def _finish_output(self) -> None:
        self._result = self._code()
        with contextlib.suppress(OSError):  # without the mark, the ending counts once this process is gone
            (self._folder / SETTLED).touch(mode=0o600)
        super()._finish_output()

    def _code(self) -> int:
        """The script's exit code, or 128 + the signal that ended it. Records the ending if the script has
        not.
        """
        returncode = self._script.returncode if self._script else None
        code = 137 if returncode is None else returncode if returncode >= 0 else 128 - returncode
        record = read(self._folder / "ending.json", Ending)
        ending = record.ending if record else None
        if ending is None:
            ending = "failed" if self._stop is None else "cancelled"
            killer = f"killed by signal {code - 128}" if code > 128 else "unable to write its records"
            self._record(ending, code or 1, f"its script was {killer}")
        if self._stop is not None and ending == "cancelled":
            return RESUME if wants_resume(self._folder / "outcome") else 128 + self._stop
        return code

    def _record(self, ending: str, code: int, reason: str) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write(self._folder / "ending.json", Ending(ending, code, int(time.time()), reason))
        except OSError as error:
            self.report(f"{self._folder}: {ending} could not be recorded: {error.strerror}")
