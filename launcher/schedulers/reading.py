"""How castoff reads scripts for a scheduler that it did not write: `ScriptReader`, one for each.

Each scheduler's folder has its own, in `reading`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from launcher.launchers.foreign.asked import Asked
from launcher.schedulers.directives import Dialect

MAIL = {"begin": "begin", "end": "end", "fail": "fail"}


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
    variables: Callable[[Asked], Mapping[str, str]]
    """What is known of the variables that the scheduler will set."""
    output_of: Callable[[str, Asked], str | None]
    """What a command about the job's nodes will print; None: it is another command, or nobody knows."""
    places: re.Pattern[str]
    """Text that works out where ranks are, which castoff does itself."""
    submit_dir: tuple[str, ...]
    """Variables that name the folder of the submission, where castoff's jobs start."""
    title: str
    starts_at_home: bool = False
    """Whether a script starts in the user's home folder, and not in that of the submission."""
    array_index: tuple[str, ...] = ()
    """Variables that hold the number of an array's member."""


def raw(name: str, value: str | bool, dialect: Dialect, asked: Asked, spelled: str) -> None:
    """A directive that no field has, as it is, unless castoff cannot let it in."""
    if name in dialect.refused:
        asked.refuse(f"{spelled} {dialect.refused[name]}")
        return
    fields = {**dialect.owned, **dialect.typed}
    if name in fields and not dialect.beyond(name, value):
        asked.refuse(f"{spelled} follows from {fields[name]}")
        return
    try:
        dialect.line(name, value)
    except ValueError as error:
        asked.refuse(f"{spelled}: {error}")
    else:
        asked.directives[name] = value
