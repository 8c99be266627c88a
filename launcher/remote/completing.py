"""Completions for a shell from another machine: its runs, and their parameters and metrics."""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Sequence

from castoff.launcher.remote.login_shell import Marks, login_command
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.ssh import Output
from castoff.launcher.schedulers.registry import OWN

_PATIENCE = 1.5
"""Seconds after which nothing is offered."""

_LARGEST = 1 << 16
"""Limit of the machine's answer, in bytes."""

_MOST = 100
"""Limit of words that are taken from the machine."""

_PLAIN = re.compile(r"\w[\w.+%/=:,-]{0,200}")
"""Words that need no quotes in any shell, whatever the machine answers."""


def words_there(machine: Machine, words: Sequence[str]) -> list[str]:
    """The words that castoff on the machine offers for the last of `words`, which is being typed.

    Only a connection that is shared already is used: a key must not ask for a password, or hang.
    """
    marks = Marks(os.urandom(8).hex())
    variables = [
        ("_CASTOFF_COMPLETE", "bash_complete"),
        ("COMP_WORDS", shlex.join(["castoff", "--on", OWN, *words])),
        ("COMP_CWORD", str(len(words) + 2)),
    ]
    script = machine.script([], marks=marks, variables=variables)
    answer = machine.ssh.ask(login_command(script), _PATIENCE, _LARGEST)
    output = Output(io.BytesIO(answer), marks)
    parts: list[bytes] = []
    if output.begins():
        output.copy(parts.append)
    if output.code != 0:  # it came too late, or is no answer
        return []
    lines = b"".join(parts).decode(errors="replace").splitlines()[:_MOST]
    offered = (word for kind, _, word in (line.partition(",") for line in lines) if kind == "plain")
    return [word for word in offered if word.startswith(words[-1]) and _PLAIN.fullmatch(word)]
