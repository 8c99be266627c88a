"""A row of a scheduler's table of fields: which directive says a field of a job, written and read. Pure.

All that has to know about a field reads the same row: what renders a script, what checks `directives:`, what
refuses fields that a scheduler lacks, and `castoff import`.
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
    """A directive says what the scheduler takes and its field cannot hold."""


OF_QUEUES = frozenset(
    {
        *("binding", "grace", "options", "env_from", "directives", "launcher.name", "launcher.args"),
        *("preflight", "requeue.max", "requeue.on"),
    }
)
"""Fields that castoff itself sees to in the jobs of every scheduler with a queue."""

OF_ARRAYS = ("array.count", "array.indices", "array.max_concurrent")
"""The fields of an array, which one directive says."""


class Job(NamedTuple):
    """What directives are made of."""

    spec: JobSpec
    site: Site
    request: Request


def _plain_text(value: Any) -> Text:
    return value if isinstance(value, bool) else str(value)


class Row(NamedTuple):
    """A directive, and the field of a job that it says."""

    directive: str
    field: str
    """Its path, as in `mail.to`; empty: it says none."""
    text: Callable[[Any], Text] = _plain_text
    """To text: of the field's value, where the job has one."""
    value: Callable[[str], Any] | None = str
    """From text: the field's value. It raises NoField or, for a text that is wrong, a ValueError that ends
    the sentence "--mem is x, which …". None: the scheduler's reader knows more of this directive."""
    bounds: tuple[int, int] | None = None
    """The least and the largest number that the field may be on this scheduler."""
    whole: Callable[[Job], Text] | None = None
    """To text, in place of `text`: of the whole job."""
    rule: Literal["typed", "owned", "open"] = "typed"
    """Whether `directives:` may say it, too. typed: only what the field cannot hold. owned: no, nor remove
    it, for the rest of the script depends on it. open: yes."""
    covers: tuple[str, ...] | None = None
    """The fields that reach the scheduler by it; None: `field`."""
    bare: str | None = None
    """The text that it means without a value; None: it has one, or is a flag."""
    follows: str = ""
    """The fields that it follows from, for messages; empty: `field`."""
    is_default: bool = False
    """Whether a site's own directive replaces it."""

    def said(self, job: Job) -> Text:
        """What the job says by it."""
        if self.whole is not None:
            return self.whole(job)
        value: Any = job.spec
        for name in self.field.split("."):
            value = getattr(value, name, None)
        return None if value is None else self.text(value)

    def read(self, text: str | bool) -> Any:
        """The field's value of a directive's.

        Raises:
            ValueError: the field cannot hold it, and why.
        """
        if self.value is None:
            raise NoField
        if isinstance(text, bool):
            if self.bare is None:
                return text
            text = self.bare
        value = self.value(text)
        if self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            least, most = sorted((self.text(bound) for bound in self.bounds), key=lambda one: int(str(one)))
            raise ValueError(f"is not from {least} to {most}")
        return value


def never(_: Job) -> None:
    """Of a directive that castoff reads or refuses, and never writes."""


def walltime(job: Job) -> str | None:
    """As Slurm and PBS read it."""
    return clock(job.request.walltime) if job.request.walltime else None


def flag(_: str) -> bool:
    """Of a directive whose field knows no value.

    Raises:
        NoField: always.
    """
    raise NoField


def whole_number(text: str) -> int:
    """Of a directive that holds one.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise ValueError("is not a whole number")
    return int(text)


def decided(directive: str, field: str, whole: Callable[[Job], Text] = never, **more: Any) -> Row:
    """A directive that castoff decides alone, which its row does not read."""
    return Row(directive, field, **{"whole": whole, "value": None, "rule": "owned", **more})


def replaceable(directive: str, field: str = "", **more: Any) -> Row:
    """A directive that a job's own may replace, which its row does not read."""
    return Row(directive, field, **{"value": None, "rule": "open", **more})


def names(rows: Iterable[Row], rule: str) -> dict[str, str]:
    """The directives of a rule, each with its field."""
    return {row.directive: row.follows or row.field for row in rows if row.rule == rule}


def requests(rows: Iterable[Row]) -> frozenset[str]:
    """The fields that reach a scheduler by its directives."""
    said = {field for row in rows for field in ([row.field] if row.covers is None else row.covers)}
    return frozenset(said - OF_EVERY_SCRIPT - {""})


def reached(rows: Iterable[Row]) -> frozenset[str]:
    """These, and those that castoff itself sees to in its jobs."""
    return OF_QUEUES | requests(rows)


def bound_problems(rows: Iterable[Row], spec: JobSpec, title: str) -> Iterator[tuple[str, str]]:
    """Numbers that a scheduler does not take: fields and messages."""
    for row in rows:
        value = getattr(spec, row.field) if row.bounds else None
        if value is not None and row.bounds and not row.bounds[0] <= value <= row.bounds[1]:
            least, most = row.bounds
            yield row.field, f"is {value}, but {title} takes a whole number from {least} to {most}"
