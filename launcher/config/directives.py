"""`directives:` of job files and profiles: for all schedulers, or in a section for one. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from castoff.launcher.config import job_fields
from castoff.launcher.config.job_fields import Directive

Given: TypeAlias = "Mapping[str, Directive | dict[str, Directive]]"


def of_scheduler(given: Given, scheduler: str) -> dict[str, Directive]:
    """The directives that apply to a scheduler: those outside of sections, and those in its section."""
    plain = {name: value for name, value in given.items() if not isinstance(value, dict)}
    plain.pop(scheduler, None)  # an empty section
    return plain | section(given, scheduler)


def section(given: Given, scheduler: str) -> dict[str, Directive]:
    """The directives in a scheduler's section."""
    value = given.get(scheduler)
    return value if isinstance(value, dict) else {}


def merged(default: Given, given: Given, scheduler: str) -> job_fields.Directives:
    """The directives of a job merged over its site's: for this scheduler at the top level, for others in
    sections.
    """
    together: job_fields.Directives = {**of_scheduler(default, scheduler), **of_scheduler(given, scheduler)}
    sections = (name for name, value in (*default.items(), *given.items()) if isinstance(value, dict))
    for name in dict.fromkeys(sections):
        values = {**section(default, name), **section(given, name)}
        if values and name != scheduler:
            together[name] = values
    return together


def place(field: str, given: Given, scheduler: str) -> str:
    """A directive's path in the job file, for errors: `directives.pbs.k` if `k` is in the section `pbs`."""
    outer, _, name = field.partition(".")
    in_section = outer == "directives" and name in section(given, scheduler)
    return f"{outer}.{scheduler}.{name}" if in_section else field
