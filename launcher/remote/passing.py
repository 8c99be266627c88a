"""Run a verb on a machine with its words unchanged, and return its output and exit code."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from castoff.launcher.config.quantities import timeout
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.logs.positions import position_mark
from castoff.launcher.remote.login_shell import Marks, login_command
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.ssh import FAILED, Bounded, ConnectionBroken, broken, reporting_silence

_SHOWN_BY = ("TERM", "NO_COLOR", "COLORTERM", "TZ", "LINES", "COLUMNS")
"""Variables that affect how a program displays its output."""

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
"""Seconds before the first attempt to reconnect, and the longest pause between attempts."""

_LARGEST_KEPT = 1 << 22
"""Limit of the size of the lines kept to recognize repeated lines, in bytes."""

_LARGEST_UNMARKED = 1 << 27
"""Limit of the size of output without a mark, in bytes."""

_MAY_BE_SILENT = ("wait", "watch", "logs", "shell", "alloc", "top")
"""Verbs that may print nothing for a long time."""


class Passed:
    """A verb with its words, to run on a machine."""

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
        self._after = [] if program is None else ["--", *program]
        self.typed = machine.command(verb, *words, *self._after) if typed is None else list(typed)

    def broken(self) -> ConnectionBroken:
        """The error for the user if the connection broke while the verb ran."""
        entry, doing = self.machine.entry, f"castoff {self.verb} ran there"
        if self.verb == "logs":
            return broken(entry, "it printed the logs; the run is unaffected", self.typed)
        if self.verb == "resubmit":  # a second call could submit the run twice
            shown = self.machine.command("list")
            return broken(entry, f"{doing}, which may have submitted the run", shown, "shows whether it did")
        if self.verb in ("stop", "cancel", "clean"):
            doing += ", which may have done all or part of it"
        return broken(entry, doing, self.typed)

    def remote_words(self, *options: str) -> list[str]:
        """The words of the castoff command that runs on the machine."""
        about = self.machine.about_caller()
        return ["on", "run", *about, *options, "--", self.verb, *self.words, *self._after]


def run_on_terminal(passed: Passed, environ: Mapping[str, str]) -> int:
    """Run a verb on the machine, connected to this terminal.

    Raises:
        CastoffError: castoff cannot be started on the machine.
    """
    with passed.machine.session(passed.typed):
        pass  # raises an error if something is missing; on a terminal there are no marks to detect that
    script = passed.machine.script(passed.remote_words(), marks=None, variables=_variables(environ))
    process = passed.machine.ssh.start(login_command(script), terminal=True, stdin=None, stdout=None)
    code = process.wait()
    if code == FAILED:
        report(
            f"{passed.machine.entry.name}: exit code 255: "
            "either the command there returned it, or the connection broke"
        )
    return code


def run(
    passed: Passed,
    environ: Mapping[str, str],
    *,
    reads: bool = False,
    variables: Mapping[str, bytes] | None = None,
    write: Callable[[bytes], object] | None = None,
    positions: _Positions | None = None,
) -> int:
    """Run a verb on the machine, and return its exit code.

    `reads`: whether the verb reads this process's standard input. `variables` are set in the verb's
    environment, without appearing in a command line. `positions`: of logs, from which it continues.

    Raises:
        ConnectionBroken: the connection cannot be made, or broke.
        CastoffError: castoff cannot be started on the machine.
    """
    marks = Marks(os.urandom(8).hex())
    options = [*_terminals(), *(["--variables"] if variables else [])]
    options += [f"--positions={positions.nonce}"] if positions else []
    script = passed.machine.script(passed.remote_words(*options), marks=marks, variables=_variables(environ))
    given = variables or (positions and positions.reached)
    stdin = subprocess.PIPE if variables or positions else None if reads else subprocess.DEVNULL
    with passed.machine.begun(script, marks, stdin) as (process, output):
        _give(process, given)
        show = write or _show
        if passed.verb in _MAY_BE_SILENT:
            output.copy(show)
        else:
            awaited = f"castoff {passed.verb} there, or its scheduler"
            with reporting_silence(passed.machine.entry.name, awaited) as has_answered:
                output.copy(lambda data: (has_answered(), show(data)))
        if output.code is None:
            raise passed.broken()
        return output.code


def _give(process: subprocess.Popen[bytes], given: object) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # the verb has ended; its output explains why
            process.stdin.write(msgspec.msgpack.encode(given))
            process.stdin.close()


def wait_through(
    passed: Passed, environ: Mapping[str, str], *, pause: Callable[[float], object] = time.sleep
) -> int:
    """Run `castoff wait` on the machine, and reconnect whenever the connection breaks.

    Raises:
        CastoffError: the first connection cannot be made, or castoff cannot be started on the machine.
    """
    begun, show = time.monotonic(), _Once(passed.machine.entry.name)
    return through_breaks(
        passed.machine,
        lambda: run(_with_time_left(passed, time.monotonic() - begun), environ, write=show),
        pause=pause,
    )


def follow_through(
    passed: Passed, environ: Mapping[str, str], *, pause: Callable[[float], object] = time.sleep
) -> int:
    """Run `castoff logs -f` on the machine, and reconnect whenever the connection breaks: no line is lost or
    shown twice.

    Raises:
        CastoffError: the first connection cannot be made, or castoff cannot be started on the machine.
    """
    positions = _Positions(passed.machine.entry.name)

    def once() -> int:
        positions.rest = b""  # it was not shown, and comes again
        code = run(passed, environ, write=positions, positions=positions)
        _show(positions.rest)
        return code

    return through_breaks(passed.machine, once, pause=pause)


class _Positions:
    """How far logs were shown: output is shown at the mark after it, which has their positions then."""

    def __init__(self, name: str) -> None:
        self.nonce = os.urandom(8).hex()
        """Distinguishes the marks from the output."""
        self.reached: dict[str, int] = {}
        """The last positions, which the next connection begins at."""
        self.rest = b""
        """Output whose mark has not arrived yet."""
        self._begin = position_mark(self.nonce)
        self._name = name

    def __call__(self, data: bytes) -> None:
        self.rest += data
        while (begin := self.rest.find(self._begin)) >= 0 and (end := self.rest.find(b"\n", begin)) >= 0:
            _show(self.rest[:begin])
            self._reach(self.rest[begin + len(self._begin) : end])
            self.rest = self.rest[end + 1 :]
        if len(self.rest) > _LARGEST_UNMARKED:
            raise CastoffError(f"{self._name}: castoff there does not mark what it prints")

    def _reach(self, positions: bytes) -> None:
        try:
            self.reached |= msgspec.json.decode(positions, type=dict[str, int])
        except msgspec.MsgspecError:
            raise CastoffError(f"{self._name}: castoff there prints a mark that is none") from None


def through_breaks(
    machine: Machine, do: Callable[[], int], *, pause: Callable[[float], object] = time.sleep
) -> int:
    """Call `do` again whenever the connection breaks; return what it returns.

    Raises:
        CastoffError: the first connection cannot be made, or castoff cannot be started on the machine.
    """
    seconds, was_connected = _FIRST_PAUSE, False
    while True:
        try:
            return do()
        except ConnectionBroken as error:
            if not (error.begun or was_connected):
                raise
            seconds = _FIRST_PAUSE if error.begun else min(2 * seconds, _LONGEST_PAUSE)
            was_connected = True
            report(
                f"{machine.entry.name}: the connection broke, and the runs are unaffected; "
                f"castoff connects again in {seconds:g} s"
            )
            pause(seconds)


class _Once:
    """Writes each line once: after reconnecting, the command prints its earlier lines again."""

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
    """The same verb with a `--timeout` shorter by `spent` seconds."""
    words = list(passed.words)
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        position = index if equals else index + 1
        if name != "--timeout" or position >= len(words):
            continue
        try:
            left = max(timeout(value if equals else words[position]) - spent, 0.0)
        except ValueError:  # the machine's castoff reports the invalid value
            break
        words[position] = f"--timeout={left:.1f}" if equals else f"{left:.1f}"
    return Passed(passed.machine, passed.verb, words, passed.program)


def _show(data: bytes) -> None:
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _terminals() -> list[str]:
    """Options that name the standard streams that are terminals, so that tables look as they would on this
    machine.
    """
    streams = (("out", sys.stdout), ("err", sys.stderr))
    return [f"--terminal={name}" for name, stream in streams if stream is not None and stream.isatty()]


def _variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    shown = {name: environ[name] for name in _SHOWN_BY if name in environ}
    if sys.stdout is not None and sys.stdout.isatty() and "COLUMNS" not in shown:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        shown |= {"COLUMNS": str(columns), "LINES": str(lines)}
    return list(shown.items())
