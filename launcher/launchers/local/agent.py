"""The agent: a process that imports modules for all ranks of this host, which start as copies of the
agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.launchers.preload.messages import peer_process, peer_user
from castoff.launcher.launchers.preload.start import agent_command, client_command, imports_torch
from castoff.launcher.launchers.preload.words import python_command
from castoff.launcher.ranks import is_stale

_PATIENCE = 5.0
"""Seconds to wait for an agent without ranks to end after TERM."""

_OF_OWNERS: list[subprocess.Popen[bytes]] = []
"""Agents that this process has started for an owner process; the owner's end ends them."""


def modules_of(
    command: Sequence[str], ranks: int, workdir: Path | None, asked: Sequence[str] | None
) -> Sequence[str]:
    """Return the modules that an agent imports for these ranks; empty: the ranks start without an agent."""
    if asked is None:
        return ["torch"] if ranks > 1 and imports_torch(command, workdir or Path()) else []
    return asked if python_command(command) else []


class Agent(NamedTuple):
    """A running agent on this host."""

    pid: int
    client: list[str]
    """The command that each rank runs instead of its own command."""
    own: subprocess.Popen[bytes] | None
    """The agent's process, if the agent serves only this start of ranks."""

    def end(self) -> None:
        """End an agent that serves only this start of ranks, and any rank that is left."""
        if self.own is None:
            return
        self.own.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.own.wait(_PATIENCE)
            return
        self.own.kill()
        self.own.wait()


def agent_of(
    command: Sequence[str],
    modules: Sequence[str],
    workdir: Path | None,
    environment: Mapping[str, str],
    *,
    by_default: bool,
    owner: int | None,
) -> Agent:
    """Return the agent of the owner process, which serves all of the owner's starts and ends with it; without
    an owner, an agent for this start.

    A new agent gets the environment of a rank, without the variables that identify the rank. It listens at an
    address of this host alone, which has no file and disappears with it.

    Raises:
        OSError: the command's Python cannot be started.
    """
    name = _name_for(owner) if owner else None
    if name and (pid := _listening_at(name)):
        return Agent(pid, client_command(f"@{name}", command), None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(f"\0{name or _own_name()}")
        except OSError:  # the address is taken
            name = None
            listener.bind(f"\0{_own_name()}")
        listener.listen(4096)
        address = "@" + listener.getsockname()[1:].decode()
        served = owner if name and owner else os.getpid()
        process = subprocess.Popen(
            agent_command(str(listener.fileno()), served, modules, command, by_default=by_default),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=workdir,
            env={name: value for name, value in environment.items() if not is_stale(name)},
            start_new_session=True,
            pass_fds=[listener.fileno()],
        )
    if name:
        _OF_OWNERS.append(process)
    return Agent(process.pid, client_command(address, command), None if name else process)


def _own_name() -> str:
    return f"castoff-{os.getuid()}-{os.getpid()}-{os.urandom(8).hex()}"


def _name_for(owner: int) -> str | None:
    """Return the address of an owner's agent; None if an agent could not notice the owner's end."""
    try:
        os.close(os.pidfd_open(owner))
        began = Path(f"/proc/{owner}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, AttributeError):  # the kernel or Python is too old, or the owner is gone
        return None
    return f"castoff-{os.getuid()}-{owner}-{began}"


def _listening_at(name: str) -> int | None:
    """Return this user's process that listens at `name`, after continuing it in case somebody has
    stopped it.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(f"\0{name}")
            if peer_user(connection) != os.getuid():
                return None
            os.kill(pid := peer_process(connection), signal.SIGCONT)
        except OSError:  # no process listens, or it has just ended
            return None
    return pid
