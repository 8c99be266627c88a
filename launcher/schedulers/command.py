"""The environment in which a scheduler's own commands run."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.ranks import STALE_VARIABLES

_PREFIXES = (
    # What Slurm's commands take for options, and the job that this process is part of.
    *("SBATCH_", "SLURM_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "PBS_"),
    *("PMI_", "PMIX_", "TORCHELASTIC_"),
)
_OF_AN_ATTEMPT = (
    *("CASTOFF_RUN_DIR", "CASTOFF_ATTEMPT", "CASTOFF_FIRST_ATTEMPT", "CASTOFF_ATTEMPT_DIR"),
    *("CASTOFF_ARRAY_OFFSET", "CASTOFF_ARRAY_INDEX", "CASTOFF_ARRAY_COUNT", "CASTOFF_LOG_DIR"),
    *("CASTOFF_STOP_FILE", "CASTOFF_OUTCOME_FILE", "CASTOFF_FAILURE_FILE", "CASTOFF_DEADLINE"),
    *("CASTOFF_GRACE", "CASTOFF_STAGE_DIR"),
    # By which what a local run has started is found, and ended.
    *("CASTOFF_MARK", "CASTOFF_LOCAL_INDEX", "CASTOFF_GUARDED"),
)
_DROPPED = frozenset({*STALE_VARIABLES, *_OF_AN_ATTEMPT})

_KEPT = frozenset(
    {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "PBS_CONF_FILE", "PBS_EXEC", "PBS_DEFAULT", "PBS_SERVER"}
)
"""Where the scheduler is and who may use it, which is the site's matter."""


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what would change a scheduler's command, or tell a job that it is another one.

    SBATCH_PARTITION in the environment wins over `#SBATCH --partition` (sbatch(1), input environment
    variables), and a job that is submitted from inside another would take its SLURM_ARRAY_TASK_ID or
    its RANK for its own.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT or not (name in _DROPPED or name.startswith(_PREFIXES))
    }
