"""The process that imports for all ranks of this host, where they begin as its copies."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.launchers.preload.start import agent_command, client_command, imports_torch
from launcher.launchers.preload.words import python_command
from launcher.ranks import is_stale

_PATIENCE = 5.0
"""Seconds in which an agent without ranks ends on TERM."""


def modules_of(
    command: Sequence[str], ranks: int, workdir: Path | None, asked: Sequence[str] | None
) -> Sequence[str]:
    """What an agent is to import for these ranks; nothing: each of them starts plainly."""
    if asked is None:
        return ["torch"] if ranks > 1 and imports_torch(command, workdir or Path()) else []
    return asked if python_command(command) else []


class Agent:
    """An agent of this host, which lives until `end`, or as long as this process."""

    def __init__(
        self,
        command: Sequence[str],
        modules: Sequence[str],
        workdir: Path | None,
        environment: Mapping[str, str],
        by_default: bool,
    ):
        """Start it, with the environment of a rank but for what says which.

        Raises:
            OSError: the command's Python cannot be started.
        """
        name = f"castoff-{os.getuid()}-{os.getpid()}-{os.urandom(8).hex()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"\0{name}")  # has no file, and is gone with the agent
            listener.listen(4096)
            number = listener.fileno()
            words = agent_command(str(number), modules, command, by_default=by_default)
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=workdir,
                env={name: value for name, value in environment.items() if not is_stale(name)},
                start_new_session=True,
                pass_fds=[number],
            )
        self.pid = self._process.pid
        self.client = client_command(f"@{name}", command)
        """What each rank runs in place of the command."""

    def end(self) -> None:
        """End it, and any rank that is left of it."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
            return
        self._process.kill()
        self._process.wait()
