"""Slurm: the scheduler's directives, its commands, and how castoff reads its answers."""

NAME = "slurm"
"""The scheduler's name in profiles."""

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")
"""Variables that are set in an allocation."""

COMMAND_VARIABLES = ("SBATCH_", "SLURM_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
"""Those of them that say where the scheduler is and who may use it, which is the site's matter."""

TITLE = "Slurm"
"""The scheduler's name in messages."""
