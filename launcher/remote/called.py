"""Verbs that run here for a caller on another machine: what such a process does first, and how it ends."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO

from castoff.launcher.trust.decision import check

_PATIENCE = 15.0
"""Seconds for a verb to end by itself after its caller has gone; by then a submission is certain."""


def check_own_folder() -> None:
    """Check that nobody else can have replaced the entry's folder, which this process runs in.

    Raises:
        CastoffError: somebody can whom the user has not trusted here.
    """
    check(Path.cwd(), otherwise="or use another folder there, with --dir of `castoff on add`")


def mark_used() -> None:
    """Note that this castoff is called, if it was installed for callers: see `unneeded`."""
    with contextlib.suppress(OSError):
        os.utime(Path(sys.prefix, "complete"))


def rewriting(machine: str, *, named: bool) -> Callable[[str], str]:
    """A function that rewrites castoff's commands in messages as the caller has to type them."""
    # `trust` without --on is always about the machine where it is typed.
    command = re.compile(r"(?<=`)castoff (?=[a-z])(?!on )" if named else "(?!)")
    trust = re.compile(r"(?<=: )castoff (?=trust )")
    shut = re.compile(r"(?<=\bor shut them out)(?=: )")

    def rewrite(text: str) -> str:
        typed = f"castoff --on {machine} "
        return shut.sub(f" on {machine}", trust.sub(typed, command.sub(typed, text)))

    return rewrite


# Standard streams


class _Stream(io.TextIOWrapper):
    """A text stream that may stand for the caller's terminal, and shows commands as they are typed there.

    Bytes that are written to its `buffer`, as logs are, stay as they are.
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
    """Let standard output and error show commands as the caller types them.

    `terminals`: `out`, `err`: which of the caller's streams are terminals.
    """
    sys.stdout = _Stream(1, rewrite, is_terminal="out" in terminals)
    sys.stderr = _Stream(2, rewrite, is_terminal="err" in terminals)


def message_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for messages alone: all else that is printed goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    sys.stdout.flush()
    return os.fdopen(source, "rb"), os.fdopen(sink, "wb")


def end_with_caller(first: signal.Signals = signal.SIGINT) -> None:
    """Interrupt this process, as by Ctrl-C, once nobody reads its standard output any more.

    Without a terminal, sshd sends no signal when the connection or the caller's ssh ends.
    """
    if not os.isatty(1):
        threading.Thread(target=_watch_output, args=[first], daemon=True).start()


def _watch_output(first: signal.Signals) -> None:
    poller = select.poll()
    try:
        poller.register(1, 0)  # POLLERR and POLLHUP are always reported
        while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll()):
            time.sleep(1)  # POLLNVAL, for instance
    except (OSError, ValueError):
        return
    for number in (first, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), number)
        time.sleep(_PATIENCE)
