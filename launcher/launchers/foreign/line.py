"""The content of a launcher's command line, and the reasons why some options are left out of a job file."""

from __future__ import annotations

from typing import NamedTuple

from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.launchers.foreign.asked import Asked

LOGS = "castoff keeps each rank's log itself; castoff logs shows them"
OF_THE_JOB = "the job's own option replaces it"
ENDS = "castoff ends the job at the first rank that fails"
HOSTS = "castoff starts ranks on all hosts of the job"
LABELS = "castoff logs shows which rank a line is from"


class Launch(NamedTuple):
    """The content of a launcher's command line."""

    launcher: str
    """The launcher's name in the command line."""
    asked: Asked
    program: list[str]
    own: LauncherName | None = None
    """castoff's name for a launcher that belongs to one scheduler, whose ranks are by default the job's
    tasks.
    """
    goes_on: str = ""
    """The option that lets the other ranks continue when one fails; empty: none. castoff would end them."""


def variable(text: str, asked: Asked) -> None:
    """Note a variable that the launcher sets for the ranks, written as `NAME=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        asked.drop(f"the variable {name}: ranks see all that setup exports")
    elif "$" in value or "`" in value:
        asked.exports[name] = value
    else:
        asked.env[name] = value
