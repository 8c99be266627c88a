"""`directives:` of job files and profiles: for every scheduler, or under the name of one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from castoff.launcher.config import job_fields
from castoff.launcher.config.job_fields import Directive

Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"


def of_scheduler(given: Given, scheduler: str) -> dict[str, Directive]:
    """The directives that apply: those under no scheduler's name, and those under this one's."""
    plain = {name: value for name, value in given.items() if not isinstance(value, dict)}
    plain.pop(scheduler, None)  # an empty section
    return plain | section(given, scheduler)


def section(given: Given, scheduler: str) -> dict[str, Directive]:
    """The directives under a scheduler's name."""
    found = given.get(scheduler)
    return found if isinstance(found, dict) else {}


def merged(default: Given, given: Given, scheduler: str) -> job_fields.Directives:
    """One job's directives merged over another's: those for this scheduler at the top level, those for
    other schedulers in their sections."""
    together: job_fields.Directives = {**of_scheduler(default, scheduler), **of_scheduler(given, scheduler)}
    sections = (name for name, value in (*default.items(), *given.items()) if isinstance(value, dict))
    for name in dict.fromkeys(sections):
        theirs = {**section(default, name), **section(given, name)}
        if theirs and name != scheduler:
            together[name] = theirs
    return together


def place(field: str, given: Given, scheduler: str) -> str:
    """A problem's field as the job spells it: `directives.k` becomes `directives.pbs.k` if it stands
    there."""
    outer, _, name = field.partition(".")
    here = outer == "directives" and name in section(given, scheduler)
    return f"{outer}.{scheduler}.{name}" if here else field
