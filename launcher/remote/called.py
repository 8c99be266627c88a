"""Set up and end a process that runs a verb for a caller on another machine."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO

from castoff.launcher import clock
from castoff.launcher.trust.decision import check

_PATIENCE = 15.0
"""Seconds between the signals that end a verb whose caller is gone; long enough for a submission to finish.
"""


def check_own_folder() -> None:
    """Check that no other user could have replaced the working directory, which is the machine's `dir`.

    Raises:
        CastoffError: a user whom this user does not trust could have replaced it.
    """
    check(Path.cwd(), otherwise="or use another folder there, with --dir of `castoff on add`")


def mark_used() -> None:
    """Record that this castoff installation is in use; `unneeded` finds installations that nobody calls."""
    with contextlib.suppress(OSError):
        os.utime(Path(sys.prefix, "complete"))


def rewriting(machine: str, *, named: bool) -> Callable[[str], str]:
    """Return a function that changes castoff commands in messages to those that the caller must type."""
    # `castoff trust` never follows CASTOFF_ON or the project's machine, so it always needs --on.
    command = re.compile(r"(?<=`)castoff (?=[a-z])(?!on )" if named else "(?!)")
    trust = re.compile(r"(?<=: )castoff (?=trust )")
    shut = re.compile(r"(?<=\bor shut them out)(?=: )")

    def rewrite(text: str) -> str:
        typed = f"castoff --on {machine} "
        return shut.sub(f" on {machine}", trust.sub(typed, command.sub(typed, text)))

    return rewrite


# Standard streams


class _Stream(io.TextIOWrapper):
    """A text stream that rewrites castoff commands, and claims to be a terminal if the caller's stream is
    one.

    Bytes written to its `buffer`, such as logs, are not rewritten.
    """

    def __init__(self, descriptor: int, rewrite: Callable[[str], str], *, is_terminal: bool):
        stream = os.fdopen(descriptor, "wb", closefd=False)
        errors = "surrogateescape" if descriptor == 1 else "backslashreplace"
        super().__init__(
            stream, encoding="utf-8", errors=errors, line_buffering=is_terminal or descriptor == 2
        )
        self._rewrite = rewrite
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal or super().isatty()

    def write(self, text: str) -> int:
        super().write(self._rewrite(text))
        return len(text)


def rewrite_streams(rewrite: Callable[[str], str], terminals: Collection[str] = ()) -> None:
    """Make standard output and standard error show commands as the caller types them.

    `terminals`: the caller's streams that are terminals: `out`, `err`.
    """
    sys.stdout = _Stream(1, rewrite, is_terminal="out" in terminals)
    sys.stderr = _Stream(2, rewrite, is_terminal="err" in terminals)


def message_streams() -> tuple[BinaryIO, BinaryIO]:
    """Reserve standard input and output for messages; anything else that is printed goes to standard
    error.
    """
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout.flush()
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")


def end_with_caller(first: signal.Signals = signal.SIGINT) -> None:
    """Interrupt this process, as by Ctrl-C, when its standard output loses its reader.

    Without a terminal, sshd sends no signal when the connection or the caller's ssh ends.
    """
    if not os.isatty(1):
        threading.Thread(target=_watch_output, args=[first], daemon=True).start()


def _watch_output(first: signal.Signals) -> None:
    poller = select.poll()
    try:
        poller.register(1, 0)  # POLLERR and POLLHUP are always reported
        while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll()):
            clock.sleep(1)  # another event, such as POLLNVAL, would return at once again
    except (OSError, ValueError):
        return
    for number in (first, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), number)
        clock.sleep(_PATIENCE)
