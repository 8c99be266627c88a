"""A launcher's command line, read; and why some of its options have no place in a job file."""

from __future__ import annotations

from typing import NamedTuple

from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.launchers.foreign.asked import Asked

LOGS = "castoff keeps each rank's log itself; castoff logs shows them"
OF_THE_JOB = "the job's own says it"
ENDS = "castoff ends the job at the first rank that fails"
HOSTS = "castoff starts ranks on all hosts of the job"
LABELS = "castoff logs shows which rank a line is from"


class Launch(NamedTuple):
    """A command line of a launcher, read."""

    launcher: str
    """What it is called by."""
    asked: Asked
    program: list[str]
    own: LauncherName | None = None
    """castoff's name of it, if one scheduler alone has it; its ranks are then the job's tasks by default."""
    goes_on: str = ""
    """Its option to let the other ranks continue when one fails, if it does; castoff would end them."""


def variable(text: str, asked: Asked) -> None:
    """A variable that the launcher sets for the ranks, as `NAME=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        asked.drop(f"the variable {name}: ranks see all that setup exports")
    elif "$" in value or "`" in value:
        asked.exports[name] = value
    else:
        asked.env[name] = value
