"""A command beside a running job of Slurm's: a step that shares what the job has with its other steps."""

from __future__ import annotations

import re
from collections.abc import Mapping

from castoff.launcher.errors import CastoffError
from castoff.launcher.schedulers.command import PATIENCE, SchedulerUnreachable, answer_of, version_of

_STEP = "srun --nodes=1 --ntasks=1 --cpu-bind=none --mpi=none"
_SHARES_BY_ITSELF = (20, 11)
"""Before this version all steps shared, and srun knows no --overlap (its release notes)."""


def command(job: str, host: str, program: list[str], terminal: bool, environ: Mapping[str, str]) -> list[str]:
    """The srun command.

    Raises:
        CastoffError: Slurm does not say which job a member of an array is.
    """
    version = re.search(r"(\d+)\.(\d+)", version_of("sbatch", environ))
    old = version is not None and (int(version[1]), int(version[2])) < _SHARES_BY_ITSELF
    return [
        *_STEP.split(),
        "--chdir=/",  # ours may not exist there; the program goes to its rank's
        *(f"--jobid={_own_id(job, environ)}", f"--nodelist={host}", *([] if old else ["--overlap"])),
        *(["--pty"] if terminal else []),
        *program,
    ]


def _own_id(job: str, environ: Mapping[str, str]) -> str:
    """The id that srun takes: each member of an array has one of its own."""
    if "_" not in job:
        return job
    ask = ["squeue", "--noheader", "--job", job, "--format", "%A"]
    try:
        found = answer_of(ask, PATIENCE, environ).split()
    except SchedulerUnreachable as why:
        raise CastoffError(f"Slurm could not be asked about job {job}: {why}") from None
    if not found:
        raise CastoffError(f"Slurm no longer knows job {job}; it may just have ended")
    return found[0]
