"""Flux: its directives, commands and answers."""

NAME = "flux"
"""The name in profiles."""

JOB_VARIABLES = ("FLUX_ENCLOSING_ID",)
"""Variables of which any marks a shell in an allocation; the machine's own instance sets none."""

COMMAND_VARIABLES = ()
"""Prefixes of variables that its commands obey, or that describe the job around them."""

MACHINE_VARIABLES = ()
"""Those of them that say where the scheduler is and who may use it, which is the site's matter."""

TITLE = "Flux"
"""The name in messages."""
