"""Flux: the scheduler's directives, its commands, and how castoff reads its answers."""

NAME = "flux"
"""The scheduler's name in profiles."""

JOB_VARIABLES = ("FLUX_ENCLOSING_ID",)
"""Variables that are set in an allocation; the machine's own Flux instance does not set them."""

COMMAND_VARIABLES = ()
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ()
"""Those of them that say where the scheduler is and who may use it, which is the site's matter."""

TITLE = "Flux"
"""The scheduler's name in messages."""
