"""Runs a command on a pseudo-terminal and passes its input and output on, for a command that asks before it
withdraws a request.

qsub -I needs a terminal, and at a Ctrl-C while it waits it asks whether to exit. castoff answers yes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence

from castoff.launcher.process.attached import Ended, signals, started

_INTERRUPT = b"\x03"
_SIZE = 8  # bytes of struct winsize
_POLL = 0.5  # seconds


def run_on_terminal(
    argv: Sequence[str],
    environ: Mapping[str, str],
    begun: Callable[[], bool],
    prompt: bytes,
    answer: bytes,
) -> Ended:
    """Run a command on its own pseudo-terminal, and wait for its end.

    Until `begun()`, a Ctrl-C, TERM or HUP interrupts it, and its question `prompt` is answered by `answer`.
    Standard input is passed on if it is a terminal.

    Raises:
        CastoffError: the command cannot be started.
    """
    ours, theirs = pty.openpty()
    ours_is_terminal = sys.stdin is not None and sys.stdin.isatty()
    try:
        _prepare(theirs, ours_is_terminal)
        process = started(argv, environ, stream=theirs)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    relay = _Relay(ours, begun, prompt, answer)

    def handle(number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGHUP) and begun():
            process.send_signal(signal.SIGHUP)  # as if the terminal were closed
        else:
            relay.interrupt()

    with signals(handle), _resizing(ours, ours_is_terminal), _raw(ours_is_terminal):
        relay.run(sys.stdin.fileno() if ours_is_terminal else None)
    os.close(ours)
    code = process.wait()
    return Ended(code if code >= 0 else 128 - code, relay.interrupted)


class _Relay:
    def __init__(self, terminal: int, begun: Callable[[], bool], prompt: bytes, answer: bytes):
        self._terminal, self._begun = terminal, begun
        self._prompt, self._answer = prompt, answer
        self._last = b""
        self._output = sys.stdout.fileno()
        self._as_lines = not sys.stdout.isatty()
        self.interrupted = False

    def interrupt(self) -> None:
        """Send the command what Ctrl-C sends."""
        self.interrupted = self.interrupted or not self._begun()
        os.write(self._terminal, _INTERRUPT)

    def run(self, source: int | None) -> None:
        """Pass input and output on until the command closes its terminal."""
        sources = [self._terminal, *([] if source is None else [source])]
        while True:
            ready, _, _ = select.select(sources, [], [], _POLL)
            if source in ready and source is not None:
                typed = b""
                with contextlib.suppress(OSError):  # our terminal is closed
                    typed = os.read(source, 4096)
                if not typed:
                    sources.remove(source)
                elif _INTERRUPT in typed and not self._begun():
                    self.interrupt()
                else:
                    os.write(self._terminal, typed)
            if self._terminal in ready and not self._show():
                return

    def _show(self) -> bool:
        try:
            part = os.read(self._terminal, 4096)
        except OSError:  # on Linux, when the last process has closed the other side
            part = b""
        if not part:
            return False
        _write(self._output, part.replace(b"\r\n", b"\n") if self._as_lines else part)
        self._last = (self._last + part)[-1000:]
        if self.interrupted and self._prompt in self._last and not self._begun():
            self._last = b""
            os.write(self._terminal, self._answer)
        return True


def _write(descriptor: int, data: bytes) -> None:
    # Our terminal may be closed, but the request must be withdrawn all the same.
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


def _prepare(terminal: int, is_ours: bool) -> None:
    """Set up a terminal like ours; if we have none, without echo."""
    if is_ours:
        termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(sys.stdin))
        _resize(terminal)
    else:
        modes = termios.tcgetattr(terminal)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _resize(terminal: int) -> None:
    size = fcntl.ioctl(sys.stdin, termios.TIOCGWINSZ, bytes(_SIZE))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _resizing(terminal: int, is_ours: bool) -> Iterator[None]:
    if not is_ours:
        yield
        return
    before = signal.signal(signal.SIGWINCH, lambda *_: _resize(terminal))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextlib.contextmanager
def _raw(is_ours: bool) -> Iterator[None]:
    """Put our terminal into raw mode, so that every key is passed on unchanged, including Ctrl-C."""
    if not is_ours:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin, termios.TCSADRAIN)  # keeps keys that were typed before
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
