"""A command that has this process's terminal, until it ends."""

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
    """How a command ended."""

    code: int
    """The exit code; 128 + N if signal N ended it."""
    interrupted: bool
    """Whether a Ctrl-C interrupted it or us."""


def run_attached(argv: Sequence[str], environ: Mapping[str, str]) -> Ended:
    """Run a command with our standard streams to its end.

    The command gets a terminal's Ctrl-C as we do; TERM and HUP are passed on. Call it in the main thread.

    Raises:
        CastoffError: it cannot be started.
    """
    process: subprocess.Popen[bytes] | None = None
    received: list[int] = []

    def handle(number: int) -> None:
        received.append(number)
        if process is not None and number in (signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)

    with signals(handle):  # from its first moment: who sees it wait may end this process at once
        process = started(argv, environ)
        for number in (*received,):
            process.send_signal(number)
        code = process.wait()
    return Ended(code if code >= 0 else 128 - code, bool(received))


def started(
    argv: Sequence[str], environ: Mapping[str, str], *, stream: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a command; with `stream` as its controlling terminal.

    Raises:
        CastoffError: it cannot be.
    """
    own = stream is not None
    try:
        return subprocess.Popen(
            argv,
            env=dict(environ),
            stdin=stream,
            stdout=stream,
            stderr=stream,
            start_new_session=own,
            # Without this its Ctrl-C would be a byte like any other.
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if own else None,
        )
    except OSError as error:
        raise CastoffError(f"{argv[0]}: cannot be started: {error.strerror}") from error


@contextlib.contextmanager
def signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Handle the signals that would end this process meanwhile; other programs do not inherit handlers."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda given, _: handle(given)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
