"""LSF: its terms, commands and answers."""

NAME = "lsf"
"""As profiles call it."""

JOB_VARIABLES = ("LSB_JOBID",)
"""Any of them marks a shell in an allocation."""

COMMAND_VARIABLES = ("LSB_", "BSUB_")
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ()
"""Those of them that say where the scheduler is, which is the site's matter; they begin with LSF_."""

TITLE = "LSF"
"""As people call it."""
