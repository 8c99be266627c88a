"""Runs castoff's own commands for an agent, and reads what they print."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.own_program import own_program

_PATIENCE = 300.0
"""Seconds that a command may take: more than a scheduler needs to answer, and a new connection by ssh."""


def command_line(words: Sequence[str], machine: str | None) -> list[str]:
    """The words of a command for castoff; `machine`: the machine that it is about, None for this one."""
    return ["castoff", *([] if machine is None else ["--on", machine]), *words]


def text_of(words: Sequence[str], machine: str | None = None) -> str:
    """What a command prints.

    Raises:
        CastoffError: the command fails, or does not end in time. The message is the command's.
    """
    shown = " ".join(command_line(words, machine)[:4])
    try:
        done = subprocess.run(
            own_program("castoff.__main__", *command_line(words, machine)[1:]),
            stdin=subprocess.DEVNULL,  # ours is the connection to the agent
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise CastoffError(f"{shown} …: no answer for {_PATIENCE:.0f} seconds") from None
    except OSError as error:
        raise CastoffError(f"{shown} …: cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise CastoffError(_complaint(done.stderr) or f"{shown} …: exit code {done.returncode}")
    return done.stdout


def answers_of(words: Sequence[str], machine: str | None = None) -> list[dict[str, Any]]:
    """The objects that a command prints with --json, one per line.

    Raises:
        CastoffError: as for `text_of`.
    """
    return [json.loads(line) for line in text_of([*words, "--json"], machine).splitlines()]


def _complaint(errors: str) -> str:
    """The message of a command that failed: of its last line if that is JSON, else all of its lines."""
    lines = errors.strip().splitlines()
    try:
        return str(json.loads(lines[-1])["error"])
    except (IndexError, KeyError, TypeError, ValueError):
        return "\n".join(line.removeprefix("castoff: ") for line in lines)
