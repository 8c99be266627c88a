"""Runs a command that uses this process's terminal until it ends."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from castoff.launcher.errors import CastoffError


class Ended(NamedTuple):
    """The end of a command."""

    code: int
    """The exit code; 128 + N if signal N ended it."""
    interrupted: bool
    """Whether a signal such as Ctrl-C interrupted the command or this process."""


def run_attached(argv: Sequence[str], environ: Mapping[str, str]) -> Ended:
    """Run a command with our standard streams, and wait for its end.

    The command gets a terminal's Ctrl-C as we do; TERM and HUP are passed on. Call it in the main thread.

    Raises:
        CastoffError: the command cannot be started.
    """
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def handle(number: int) -> None:
        received.append(number)
        if process is not None and number in (signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)

    with signals(handle):  # before the start, since signals may arrive at once
        process = started(argv, environ)
        for number in (*received,):
            process.send_signal(number)
        code = process.wait()
    return Ended(code if code >= 0 else 128 - code, bool(received))


def started(
    argv: Sequence[str], environ: Mapping[str, str], *, stream: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a command; `stream`: its controlling terminal and standard streams.

    Raises:
        CastoffError: the command cannot be started.
    """
    on_terminal = stream is not None
    try:
        return subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=stream,
            stdout=stream,
            stderr=stream,
            start_new_session=on_terminal,
            # Without this, Ctrl-C would be an ordinary byte to the command.
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if on_terminal else None,
        )
    except OSError as error:
        raise CastoffError(f"{argv[0]}: cannot be started: {error.strerror}") from error


@contextlib.contextmanager
def signals(handle: Callable[[int], None]) -> Iterator[None]:
    """During the block, handle the signals that would end this process. Children do not inherit this."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda given, _: handle(given)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
