"""Run a verb on a machine: its words get there unchanged, and its output and exit code come back."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from castoff.launcher.errors import report
from castoff.launcher.remote.login_shell import Marks, login_command
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.ssh import FAILED, Bounded, ConnectionBroken, broken, reporting_silence

_SHOWN_BY = ("TERM", "NO_COLOR", "COLORTERM", "TZ", "LINES", "COLUMNS")
"""Variables by which a program chooses how to show its output."""

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds between attempts to connect again."""

_LARGEST_KEPT = 1 << 22
"""Bytes of lines that are kept, so that each is written once."""

_MAY_BE_SILENT = ("wait", "logs", "shell", "alloc", "top")
"""Verbs that may print nothing for long."""


class Passed:
    """A verb with its words, for a machine."""

    def __init__(
        self,
        machine: Machine,
        verb: str,
        words: Sequence[str],
        program: Sequence[str] | None = None,
        *,
        typed: Sequence[str] | None = None,
    ):
        """`typed`: the command as the user types it, if that is not `castoff --on NAME VERB WORDS`."""
        self.machine = machine
        self.verb = verb
        self.words = list(words)
        self.program = None if program is None else list(program)
        self._behind = [] if program is None else ["--", *program]
        self.typed = machine.command(verb, *words, *self._behind) if typed is None else list(typed)

    def broken(self) -> ConnectionBroken:
        """The error that the connection broke while it ran."""
        entry, doing = self.machine.entry, f"castoff {self.verb} ran there"
        if self.verb == "logs":
            return broken(entry, "the logs were shown; the run is unaffected", self.typed)
        if self.verb == "resubmit":  # which is not to be called twice
            shown = self.machine.command("list")
            return broken(entry, f"{doing}, which may have submitted the run", shown, "shows whether it has")
        if self.verb in ("stop", "cancel", "clean"):
            doing += ", which may have done all or part of it"
        return broken(entry, doing, self.typed)

    def remote_words(self, *options: str) -> list[str]:
        """The words of the castoff command there."""
        about = self.machine.about_caller()
        return ["on", "run", *about, *options, "--", self.verb, *self.words, *self._behind]


def run_on_terminal(passed: Passed, environ: Mapping[str, str]) -> int:
    """Run a verb on a terminal there, which is ours.

    Raises:
        CastoffError: nothing can be begun there.
    """
    with passed.machine.session(passed.typed):
        pass  # raises what is missing, which a terminal shows like any output
    script = passed.machine.script(passed.remote_words(), marks=None, variables=_variables(environ))
    process = passed.machine.ssh.start(login_command(script), terminal=True, stdin=None, stdout=None)
    code = process.wait()
    if code == FAILED:
        report(f"{passed.machine.entry.name}: code 255 is that of the command there, or the connection broke")
    return code


def run(
    passed: Passed,
    environ: Mapping[str, str],
    *,
    reads: bool = False,
    variables: Mapping[str, bytes] | None = None,
    write: Callable[[bytes], object] | None = None,
) -> int:
    """Run a verb there, and return its exit code.

    With `reads`, it gets our standard input. `variables` are set for it there, and are in no command line.

    Raises:
        ConnectionBroken: the connection cannot be made, or broke.
        CastoffError: nothing can be begun there.
    """
    marks = Marks(os.urandom(8).hex())
    options = [*_terminals(), *(["--variables"] if variables else [])]
    script = passed.machine.script(passed.remote_words(*options), marks=marks, variables=_variables(environ))
    stdin = subprocess.PIPE if variables else None if reads else subprocess.DEVNULL
    with passed.machine.begun(script, marks, stdin) as (process, output):
        _give(process, variables)
        show = write or _show
        if passed.verb in _MAY_BE_SILENT:
            output.copy(show)
        else:
            with reporting_silence(passed.machine.entry.name) as heard:
                output.copy(lambda data: (heard(), show(data)))
        if output.code is None:
            raise passed.broken()
        return output.code


def _give(process: subprocess.Popen[bytes], variables: Mapping[str, bytes] | None) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # then its output says why
            process.stdin.write(msgspec.msgpack.encode(variables))
            process.stdin.close()


def wait_through(
    passed: Passed, environ: Mapping[str, str], *, pause: Callable[[float], object] = time.sleep
) -> int:
    """Run `castoff wait` there, and connect again whenever the connection breaks.

    Raises:
        CastoffError: the first connection cannot be made, or nothing can be begun there.
    """
    begun, seconds, shown = time.monotonic(), _FIRST_PAUSE, _Once(passed.machine.entry.name)
    was_there = False
    while True:
        started = time.monotonic()
        try:
            return run(_with_time_left(passed, started - begun), environ, write=shown)
        except ConnectionBroken as error:
            if not (error.begun or was_there):
                raise
            seconds = _FIRST_PAUSE if error.begun else min(2 * seconds, _LONGEST_PAUSE)
            was_there = True
            report(
                f"{passed.machine.entry.name}: the connection broke, and the runs are unaffected; "
                f"castoff connects again in {seconds:g} s"
            )
            pause(seconds)


class _Once:
    """Writes each line once, though it is printed again after every new connection."""

    def __init__(self, name: str) -> None:
        self._answer = Bounded(f"{name}: what `castoff wait` prints there", _LARGEST_KEPT)
        self._seen: set[bytes] = set()
        self._rest = b""

    def __call__(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LARGEST_KEPT:
            self._answer.take(self._rest)
        for line in lines:
            if line not in self._seen:
                self._seen.add(self._answer.take(line + b"\n")[:-1])
                _show(line + b"\n")


def _with_time_left(passed: Passed, spent: float) -> Passed:
    """The same verb, whose `--timeout` is shorter by the time spent."""
    words = list(passed.words)
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        place = at if equals else at + 1
        if name != "--timeout" or place >= len(words):
            continue
        try:
            left = max(float(value if equals else words[place]) - spent, 0.0)
        except ValueError:  # the castoff there reports it
            break
        words[place] = f"--timeout={left:.1f}" if equals else f"{left:.1f}"
    return Passed(passed.machine, passed.verb, words, passed.program)


def _show(data: bytes) -> None:
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _terminals() -> list[str]:
    """Options that name our streams that are terminals, so that tables look the same as here."""
    streams = (("out", sys.stdout), ("err", sys.stderr))
    return [f"--terminal={name}" for name, stream in streams if stream is not None and stream.isatty()]


def _variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    shown = {name: environ[name] for name in _SHOWN_BY if name in environ}
    if sys.stdout is not None and sys.stdout.isatty() and "COLUMNS" not in shown:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        shown |= {"COLUMNS": str(columns), "LINES": str(lines)}
    return list(shown.items())
