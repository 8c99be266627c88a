"""Which ranks start as copies, and the command lines of their agent and of each rank's client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from castoff.launcher.launchers.preload.words import python_command

FOLDER = Path(__file__).resolve().parent
"""The folder of the programs that the job's own Python runs."""

_IMPORTS_TORCH = re.compile(rb"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
_LARGEST = 1024 * 1024


def imports_torch(command: Sequence[str], folder: Path) -> bool:
    """Whether a command runs Python, and its script has a line that imports torch."""
    python = python_command(command)
    if python is None or python.letter:
        return False
    try:
        with (folder / python.target).open("rb") as script:
            return _IMPORTS_TORCH.search(script.read(_LARGEST)) is not None
    except OSError:
        return False


def agent_command(
    address: str, owner: int | None, modules: Sequence[str], command: Sequence[str], *, by_default: bool
) -> list[str]:
    """Return the command that starts a node's agent.

    `address`: the number of a listening file, or an abstract address with @. `owner`: the id of the process
    with which the agent ends; None: its parent. `by_default`: nobody asked for the modules, so failed imports
    are not reported.
    """
    how = "default" if by_default else "asked"
    begin = [command[0], "-I", "-S", str(FOLDER / "begin.py")]
    return [*begin, address, str(owner or "parent"), how, ",".join(modules), "--", *command]


def client_command(address: str, command: Sequence[str]) -> list[str]:
    """Return the command that a rank's process runs instead of its own command."""
    return [command[0], "-I", "-S", str(FOLDER / "client.py"), address, "", *command]
