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
    """128 + N where signal N ended it."""
    interrupted: bool
    """Whether somebody interrupted it, or us."""


def run_attached(argv: Sequence[str], environ: Mapping[str, str]) -> Ended:
    """Run a command with our standard streams to its end.

    A terminal's Ctrl-C is the command's, which gets it as we do; TERM and HUP are passed on. Call it in the
    main thread.

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
    """A command that has been started; with `stream` as its own terminal.

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
    """Have what would end this process handled meanwhile. Handlers are not inherited by other programs."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda given, _: handle(given)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
