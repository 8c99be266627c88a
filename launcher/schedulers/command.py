"""How a scheduler's own commands are run: in which environment, and for how long."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.ranks import is_stale

_PREFIXES = (
    # What Slurm's commands take for options, and the job that this process is part of.
    *("SBATCH_", "SLURM_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "PBS_"),
    *("PMI_", "PMIX_", "TORCHELASTIC_", "CASTOFF_"),
)

SETTINGS = ("CASTOFF_RUNS_DIR", "CASTOFF_SITE")
"""The user's own variables; every other CASTOFF_* belongs to some job."""

_KEPT = frozenset(
    {
        *SETTINGS,
        # Where the scheduler is and who may use it, which is the site's matter.
        *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
        *("PBS_CONF_FILE", "PBS_EXEC", "PBS_DEFAULT", "PBS_SERVER"),
    }
)


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change a scheduler's command, or make a job take itself for another one.

    SBATCH_PARTITION in the environment wins over `#SBATCH --partition` (sbatch(1), input environment
    variables), and a job that is submitted from inside another would take its SLURM_ARRAY_TASK_ID or
    its RANK for its own.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or not (is_stale(name) or name.startswith(_PREFIXES))
    }


PATIENCE = 30.0
"""Seconds for an answer: what a busy scheduler may take."""


VERSION_PATIENCE = 5.0
"""Seconds that a program gets to say its version."""


class SchedulerUnreachable(Exception):
    """A command that gave no answer; the text says why."""

    def __init__(self, why: str, *, lasting: bool = False):
        super().__init__(why)
        self.lasting = lasting


def answer_of(argv: list[str], patience: float, environ: Mapping[str, str]) -> str:
    """What a command prints.

    Raises:
        SchedulerUnreachable: it is not here, fails, or takes too long.
    """
    done = run_to_end(argv, patience, environ)
    if done.returncode:
        raise SchedulerUnreachable(failure_of(done))
    return done.stdout


def failure_of(done: subprocess.CompletedProcess[str]) -> str:
    """How a command failed, with its words."""
    lines = [" ".join(line.split()) for line in (done.stderr.strip() or done.stdout.strip()).splitlines()]
    # qstat repeats one sentence for each of its jobs.
    message = " ".join(dict.fromkeys(filter(None, lines))) or "without a message"
    message = message.encode("utf-8", "replace").decode()
    return f"{Path(done.args[0]).name} failed with exit code {done.returncode}: {message[:500]}"


def run_to_end(
    argv: list[str], patience: float, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's command to its end.

    Raises:
        SchedulerUnreachable: it is not here, or takes too long.
    """
    import shutil

    program = shutil.which(argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise SchedulerUnreachable(
            f"{argv[0]} is not on PATH here; ask on a login node of the machine", lasting=True
        )
    try:
        return subprocess.run(
            [program, *argv[1:]],
            # In no language but the one that is read here, and times in seconds since 1970.
            env={**command_environment(environ), "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SchedulerUnreachable(f"{argv[0]} gave no answer within {patience:g} s") from None
    except OSError as error:
        raise SchedulerUnreachable(f"{argv[0]} cannot be run: {error.strerror}") from None


def ssh_command(host: str, program: Sequence[str], *, terminal: bool) -> list[str]:
    """What runs a program on another host by ssh, which hands one line to a shell there."""
    return ["ssh", "-t" if terminal else "-T", "--", host, shlex.join(program)]


def version_of(program: str, environ: Mapping[str, str]) -> str:
    """What a program says of its version, in small letters; nothing where it knows no --version."""
    try:
        done = run_to_end([program, "--version"], VERSION_PATIENCE, environ)
    except SchedulerUnreachable:
        return ""
    return "" if done.returncode else f"{done.stdout}{done.stderr}".lower()
