"""Running the command on a terminal, as a person does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests import patience


class Answer(NamedTuple):
    code: int
    output: str
    """All that the terminal was sent, escapes included."""


def on_terminal(
    *words: str | Path,
    cwd: Path,
    columns: int = 100,
    typed: str = "",
    env: Mapping[str, str] | None = None,
    stdout: int | None = None,
    then: Iterable[tuple[str, Callable[[], object] | str]] = (),
    has_signals: bool = False,
) -> Answer:
    """Run a command whose standard streams are a terminal; `stdout`: but for this one.

    `has_signals`: whether a Ctrl-C that is typed interrupts it, and is no byte like any other.

    `then`: what to do, or to type, as soon as the terminal has been sent such a text, one after the other.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    process = subprocess.Popen(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if has_signals else None,
    )
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    output = b""
    awaited = list(then)
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux says so when the last of the other side has gone
            break
        if not part:
            break
        output += part
        if awaited and re.search(awaited[0][0], output.decode(errors="replace")):
            reaction = awaited.pop(0)[1]
            if isinstance(reaction, str):
                os.write(ours, reaction.encode())
            else:
                reaction()
    os.close(ours)
    return Answer(process.wait(patience.SECONDS), output.decode(errors="replace").replace("\r\n", "\n"))
