"""PBS: the scheduler's directives, its commands, and how castoff reads its answers."""

NAME = "pbs"
"""The scheduler's name in profiles."""

JOB_VARIABLES = ("PBS_JOBID",)
"""Variables that are set in an allocation."""

COMMAND_VARIABLES = ("PBS_",)
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ("PBS_CONF_FILE", "PBS_EXEC", "PBS_DEFAULT", "PBS_SERVER")
"""Those of them that say where the scheduler is and who may use it, which is the site's matter."""

TITLE = "PBS"
"""The scheduler's name in messages."""
