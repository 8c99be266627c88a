"""`launcher.preload`: the modules that one process per node imports for its ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.launchers.preload.words import python_command


def problems(spec: JobSpec, launcher: LauncherName, *, function: bool) -> Iterator[tuple[str, str]]:
    """Yield why a job's ranks cannot be forked from a process that has imported modules."""
    if not spec.launcher.preload:
        return
    own = LAUNCHERS[launcher]
    if spec.launcher.torchrun:
        yield "launcher.preload", "is set, but torchrun starts the ranks: drop one of the two"
    if spec.container.image is not None:
        yield "launcher.preload", "is set, but each rank has a container of its own: drop one of the two"
    if own.fills_in:
        yield "launcher.preload", f"is set, but {launcher} starts nothing beside the ranks: drop it"
    if function:
        return
    if python_command(spec.command) is None:
        what = "is for ranks that are started as python SCRIPT or python -m MODULE, and command is not"
        yield "launcher.preload", f"{what}: drop it"
    elif ":" in spec.command and not own.here:
        yield (
            "launcher.preload",
            "is set, but of a command with a lone : a shell starts Python: drop one of the two",
        )
