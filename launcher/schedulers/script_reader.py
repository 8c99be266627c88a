"""Reads scripts that castoff has not written: a `ScriptReader` in the folder of each scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.dialect import Dialect
from castoff.launcher.schedulers.table import NoField

SUBMITS = "it is for the command that submits"
"""The reason why some directives have no meaning in a job file."""

REQUEUE = {"max": 5, "on": ["preempted", "node-failure"], "progress": "none"}
"""The field `requeue` for a job that the scheduler may start again."""


class ScriptReader(NamedTuple):
    """How to read scripts for a scheduler."""

    name: str
    directive: re.Pattern[str]
    """Matches a line with a directive; its group is the text after the mark."""
    mistaken: re.Pattern[str]
    """Matches a line that looks like a directive but is a comment to the scheduler."""
    ends_at_command: bool
    """Whether the first command ends the directives, so that later ones are comments."""
    read: Callable[[str, Asked], None]
    """Adds a directive's request to the job's other requests."""
    finish: Callable[[Asked], None]
    """Adds the scheduler's defaults for settings that no directive sets."""
    variables: Callable[[Asked], Mapping[str, str | None]]
    """Returns the values that the directives give the scheduler's variables for sizes; None: not set."""
    sizes: re.Pattern[str]
    """Matches the names of variables that depend on how sizes are requested."""
    same_in_ranks: re.Pattern[str]
    """Matches the scheduler's variables that have the same value in the script and in each rank."""
    own: re.Pattern[str]
    """Matches the scheduler's commands and variables, which no other scheduler has."""
    mark: str
    """The beginning of a directive's line, such as `#SBATCH`."""
    title: str
    """The command that takes scripts, such as `sbatch`."""
    scheduler: str
    """The scheduler's name in messages."""
    submit_dir: str = ""
    """The variable with the folder of the submission."""
    starts_at_home: bool = False
    """Whether a script starts in the user's home folder instead of the folder of the submission."""
    needs_shebang: bool = False
    """Whether the scheduler refuses a script whose first line names no interpreter."""
    array_index: str = ""
    """The variable with the number of an array's member."""
    requeues: re.Pattern[str] | None = None
    """Matches a command that requeues the script's own job, which a job without `requeue` may not do."""


def read_field(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> bool:
    """Read a directive into its field, by the directive's row; return False if no row can read it."""
    row = dialect.row(name)
    if row is None:
        return False
    try:
        field_value = row.read(value)
    except NoField:
        raw(name, value, dialect, asked, spelled)
        return True
    except ValueError as error:
        asked.refuse(f"{spelled} is {value}, which {error}")
        return True
    asked.fields[row.field] = field_value
    if name in dialect.sizes:
        as_written(name, value, dialect, asked, spelled)
    return True


def raw(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> None:
    """Add a directive that no field expresses to `directives`, unless castoff must refuse it."""
    if name in dialect.refused:
        asked.refuse(f"{spelled} {dialect.refused[name]}")
        return
    fields = dialect.said_by_fields
    if name in fields and not dialect.beyond(name, value):
        asked.refuse(f"{spelled} follows from {fields[name]}")
    elif as_written(name, value, dialect, asked, spelled):
        asked.directives[name] = value


def as_written(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> bool:
    """Add a directive for a job that keeps its script; return whether the scheduler's syntax allows the
    directive.
    """
    try:
        dialect.line(name, value)
    except ValueError as error:
        asked.refuse(f"{spelled}: {error}")
        return False
    asked.raw[name] = value
    return True
