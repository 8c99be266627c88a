"""Runs a command next to a rank of a running job.

On the host, templates/interactive/beside.sh finds the rank's process and copies its environment, which is
thus never written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from castoff.launcher.interactive.places import Place, on_host
from castoff.launcher.planning.render import template_folder

_SSH_FAILED = 255
"""ssh's exit code if ssh itself fails: ssh(1), EXIT STATUS."""


def command_line(
    where: Place, program: Sequence[str], *, terminal: bool, environ: Mapping[str, str]
) -> list[str]:
    """The command line that runs a program on that host, or a shell if `program` is empty. `terminal`: give
    it a terminal.

    Raises:
        CastoffError: the host cannot be reached from this one.
    """
    words = [str(where.attempt), "" if where.rank is None else str(where.rank), where.run.id, *program]
    text = (template_folder() / "interactive" / "beside.sh").read_text(encoding="utf-8")
    command = ["/bin/bash", "-c", text, "castoff", *words]
    return on_host(where, command, terminal=terminal, environ=environ, verb="shell")


def unreached(argv: Sequence[str], code: int) -> str | None:
    """A message if a command of `command_line` may not have reached its host; else None."""
    if argv[0] != "ssh" or code != _SSH_FAILED:
        return None
    return (
        "ssh exits with code 255 if it cannot reach the host: some sites allow no ssh, others only while "
        "your job runs there; from inside the job itself a command needs no ssh"
    )
