"""How castoff reads scripts for a scheduler that it did not write: a `ScriptReader` in each one's folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.dialect import Dialect
from castoff.launcher.schedulers.table import NoField

SUBMITS = "it is for the command that submits"
"""Why a directive has no meaning in a job file."""

REQUEUE = {"max": 5, "on": ["preempted", "node-failure"], "progress": "none"}
"""The field `requeue` of a job that its scheduler may start again."""


class ScriptReader(NamedTuple):
    """How a scheduler's scripts are read."""

    name: str
    directive: re.Pattern[str]
    """A line with a directive; its group is what stands behind the mark."""
    mistaken: re.Pattern[str]
    """A line that looks like one, and is a comment to the scheduler."""
    ends_at_command: bool
    """Whether the first command ends the directives, and those below it are comments."""
    read: Callable[[str, Asked], None]
    """Adds what a directive says to what the job asks for."""
    finish: Callable[[Asked], None]
    """Adds what holds where nothing is said."""
    variables: Callable[[Asked], Mapping[str, str | None]]
    """What the script's variables for sizes will hold by its directives; None: they are not set."""
    sizes: re.Pattern[str]
    """Names of variables that depend on how sizes are asked for."""
    same_in_ranks: re.Pattern[str]
    """Its variables that are the same in the script and in each rank."""
    own: re.Pattern[str]
    """Its commands and variables, which a script has under no other scheduler."""
    mark: str
    """What directives begin with."""
    title: str
    """Of the command that takes scripts."""
    scheduler: str
    """How people call it."""
    submit_dir: str = ""
    """The variable that names the folder of the submission."""
    starts_at_home: bool = False
    """Whether a script starts in the user's home folder, and not in that of the submission."""
    needs_shebang: bool = False
    """Whether it refuses a script whose first line names no interpreter."""
    requeues: re.Pattern[str] | None = None
    """What a script says to have its own job started again, which a job without `requeue` may not."""


def read_field(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> bool:
    """A directive whose text is a field's, by its row; False: it has none."""
    row = dialect.row(name)
    if row is None:
        return False
    try:
        held = row.read(value)
    except NoField:
        raw(name, value, dialect, asked, spelled)
        return True
    except ValueError as error:
        asked.refuse(f"{spelled} is {value}, which {error}")
        return True
    asked.fields[row.field] = held
    if name in dialect.sizes:
        as_written(name, value, dialect, asked, spelled)
    return True


def raw(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> None:
    """A directive that no field has, as it is, unless castoff cannot let it in."""
    if name in dialect.refused:
        asked.refuse(f"{spelled} {dialect.refused[name]}")
        return
    fields = dialect.said_by_fields
    if name in fields and not dialect.beyond(name, value):
        asked.refuse(f"{spelled} follows from {fields[name]}")
    elif as_written(name, value, dialect, asked, spelled):
        asked.directives[name] = value


def as_written(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> bool:
    """A directive as a job that keeps its script has it; whether the scheduler's syntax can hold it."""
    try:
        dialect.line(name, value)
    except ValueError as error:
        asked.refuse(f"{spelled}: {error}")
        return False
    asked.raw[name] = value
    return True
