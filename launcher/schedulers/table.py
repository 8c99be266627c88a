"""The rows of a scheduler's table of fields: how a job's field and its directive are read and written. Pure.

All code that depends on a field uses the same row: rendering, the checks of `directives:` and of fields that
a scheduler lacks, and `castoff import`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.base import Request
from castoff.launcher.runs.plan import OF_EVERY_SCRIPT

Text: TypeAlias = "str | bool | None"
"""A directive's value: True is a bare flag; None leaves the directive out."""


class NoField(ValueError):
    """The scheduler accepts the directive, but its field cannot express it."""


OF_QUEUES = frozenset(
    {
        *("binding", "grace", "options", "env_from", "directives", "launcher.name", "launcher.args"),
        *("preflight", "requeue.max", "requeue.on"),
    }
)
"""Fields that castoff itself handles in the jobs of every scheduler with a queue."""

OF_ARRAYS = (*("array.count", "array.indices", "array.parameters", "array.commands", "array.max_concurrent"),)
"""The fields of an array, which one directive expresses."""

OF_SHARED_JOBS = ("array.together.nodes", "array.together.members", "array.together.per_node")
"""The fields of members that share jobs."""


class Job(NamedTuple):
    """The input for writing directives."""

    spec: JobSpec
    site: Site
    request: Request


def _plain_text(value: Any) -> Text:
    return value if isinstance(value, bool) else str(value)


class Row(NamedTuple):
    """A directive, and the job field that it expresses."""

    directive: str
    field: str
    """The field's path, such as `mail.to`; empty: no field."""
    text: Callable[[Any], Text] = _plain_text
    """Writes the directive's value from the field's value, if the job has one."""
    value: Callable[[str], Any] | None = str
    """Reads the field's value from the directive's value. The function raises NoField or, for a wrong text, a
    ValueError that ends the sentence "--mem is x, which …". None: the scheduler's `ScriptReader` reads the
    directive.
    """
    bounds: tuple[int, int] | None = None
    """The least and the greatest number that this scheduler allows."""
    whole: Callable[[Job], Text] | None = None
    """Writes the directive's value from the whole job, instead of `text`."""
    rule: Literal["typed", "owned", "open"] = "typed"
    """Whether `directives:` may also set the directive. typed: only to values that the field cannot hold.
    owned: no, and may not remove it, since the rest of the script depends on it. open: yes.
    """
    covers: tuple[str, ...] | None = None
    """The fields that reach the scheduler through the directive; None: `field`."""
    bare: str | None = None
    """The value that the directive has if it is written without one; None: it needs a value, or is a flag."""
    follows: str = ""
    """The fields from which the directive follows, for messages; empty: `field`."""
    is_default: bool = False
    """Whether a directive of the site replaces this directive."""

    def said(self, job: Job) -> Text:
        """Return the directive's value for the job; None: the directive is left out."""
        if self.whole is not None:
            return self.whole(job)
        value: Any = job.spec
        for name in self.field.split("."):
            value = getattr(value, name, None)
        return None if value is None else self.text(value)

    def read(self, text: str | bool) -> Any:
        """Read the field's value from the directive's value.

        Raises:
            ValueError: the field cannot hold it; the text says why.
        """
        if self.value is None:
            raise NoField
        if isinstance(text, bool):
            if self.bare is None:
                return text
            text = self.bare
        value = self.value(text)
        if self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            least, most = sorted(
                (self.text(bound) for bound in self.bounds), key=lambda bound_text: int(str(bound_text))
            )
            raise ValueError(f"is not from {least} to {most}")
        return value


def never(_: Job) -> None:
    """Leave the directive out: castoff reads or refuses it, and never writes it."""


def walltime(job: Job) -> str | None:
    """Write the walltime as Slurm and PBS read it."""
    return clock(job.request.walltime) if job.request.walltime else None


def flag(_: str) -> bool:
    """Refuse a text for a flag, since a flag has no value.

    Raises:
        NoField: always.
    """
    raise NoField


def whole_number(text: str) -> int:
    """Read a whole number.

    Raises:
        ValueError: the text is not a whole number.
    """
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise ValueError("is not a whole number")
    return int(text)


def decided(directive: str, field: str, whole: Callable[[Job], Text] = never, **more: Any) -> Row:
    """Make the row of a directive that only castoff sets; by default the row does not read the directive."""
    return Row(directive, field, **{"whole": whole, "value": None, "rule": "owned", **more})


def replaceable(directive: str, field: str = "", **more: Any) -> Row:
    """Make the row of a directive that the job's `directives:` may replace; by default the row does not read
    it.
    """
    return Row(directive, field, **{"value": None, "rule": "open", **more})


def names(rows: Iterable[Row], rule: str) -> dict[str, str]:
    """Return the directives with this `rule`, each with its field."""
    return {row.directive: row.follows or row.field for row in rows if row.rule == rule}


def requests(rows: Iterable[Row]) -> frozenset[str]:
    """Return the fields that reach a scheduler through its directives."""
    fields = {field for row in rows for field in ([row.field] if row.covers is None else row.covers)}
    return frozenset(fields - OF_EVERY_SCRIPT - {""})


def reached(rows: Iterable[Row]) -> frozenset[str]:
    """Return these fields, and the fields that castoff itself handles in the scheduler's jobs."""
    return OF_QUEUES | requests(rows)


def bound_problems(rows: Iterable[Row], spec: JobSpec, title: str) -> Iterator[tuple[str, str]]:
    """Yield the job's numbers that a scheduler does not accept, as fields and messages."""
    for row in rows:
        value = getattr(spec, row.field) if row.bounds else None
        if value is not None and row.bounds and not row.bounds[0] <= value <= row.bounds[1]:
            least, most = row.bounds
            yield row.field, f"is {value}, but {title} takes a whole number from {least} to {most}"
