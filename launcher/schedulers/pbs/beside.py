"""A command beside a running job of PBS's, from inside the job or by ssh."""

from __future__ import annotations

from collections.abc import Mapping

from castoff.launcher.schedulers.command import ssh_command

_ATTACH = """\
own=$(. /etc/pbs.conf 2>/dev/null && echo "$PBS_EXEC/bin/pbs_attach")
for attach in "$(command -v pbs_attach)" "$own"; do
  if [ -x "$attach" ]; then "$attach" -j "$1" -p $$ >/dev/null 2>&1 && break; fi
done
shift
exec "$@"
"""
"""Makes the session part of the job, where PBS lets it: it then ends with the job, and sees its devices."""


def command(job: str, host: str, program: list[str], terminal: bool, environ: Mapping[str, str]) -> list[str]:
    """By ssh: pbs_tmrsh works in the job alone, and gives no terminal (pbs_tmrsh(8B))."""
    if environ.get("PBS_JOBID") == job and not terminal:
        return ["pbs_tmrsh", host, *program]
    return ssh_command(host, ["/bin/sh", "-c", _ATTACH, "castoff", job, *program], terminal=terminal)
