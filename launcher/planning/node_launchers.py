"""A command that starts ranks of its own on one node, as torchrun does. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from castoff.launcher.config.job import JobSpec

_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}


def node_launcher(command: Sequence[str]) -> str | None:
    """What starts the ranks of a node if a command does so itself: torchrun, accelerate or deepspeed."""
    name = PurePosixPath(command[0]).name if command else ""
    if name in ("torchrun", "deepspeed") or (name == "accelerate" and command[1:2] == ["launch"]):
        return name
    if re.fullmatch(r"python[0-9.]*", name) and "-m" in command[:-1]:
        return _MODULES.get(command[command.index("-m") + 1])
    return None


def problems(spec: JobSpec, most: int) -> Iterator[tuple[str, str]]:
    """Why a job may not run such a command; `most`: its ranks on the fullest node."""
    name = node_launcher(spec.command)
    if name is None or spec.launcher.driver:
        return
    without = "set `launcher: {torchrun: true}` and leave torchrun and its options out of command"
    if spec.launcher.torchrun:
        yield "command", f"starts {name}, which launcher.torchrun starts already: leave it out of command"
    elif most > 1:
        fix = f"{without}, or set ranks_per_node: 1" if name == "torchrun" else "set ranks_per_node: 1"
        yield (
            "command",
            f"starts {name} {most} times on a node, once per rank, and each starts ranks itself: {fix}",
        )
