"""PBS: its directives, commands and answers."""

NAME = "pbs"
"""The name in profiles."""

JOB_VARIABLES = ("PBS_JOBID",)
"""Variables of which any marks a shell in an allocation."""

COMMAND_VARIABLES = ("PBS_",)
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ("PBS_CONF_FILE", "PBS_EXEC", "PBS_DEFAULT", "PBS_SERVER")
"""Those of them that say where the scheduler is and who may use it, which is the site's matter."""

TITLE = "PBS"
"""The name in messages."""
