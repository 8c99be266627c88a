"""The results of runs' members: their parameters, and the last and best values of metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from castoff.launcher.errors import printable
from castoff.launcher.history.metrics import Metrics, Point, metrics_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus, RunStatus, why


class Values(NamedTuple):
    """One metric of a member, in brief."""

    number: int
    """How many there are."""
    last: Point
    """It may not be finite."""
    smallest: Point | None
    """Of the finite ones, the earliest of equal ones; None: none is finite."""
    largest: Point | None
    odd: int = 0
    """How many are not finite."""
    first_odd: Point | None = None

    def best(self, *, largest: bool) -> Point | None:
        """The best of its finite values; None: it has none."""
        return self.largest if largest else self.smallest


@dataclass(frozen=True)
class Result:
    """One member of a run."""

    run: str
    """The run's id."""
    directory: str
    member: int
    state: str
    """How it ended, or the state that it is in."""
    code: int | None
    attempts: int
    seconds: float | None
    """What its attempts took together, by now; None: it never began."""
    why: str
    """Why it failed; empty: it has not, or nobody knows."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with, by path."""
    metrics: Mapping[str, Values] = field(default_factory=dict)


def result_of(run: RunDirectory, now: RunStatus, member: MemberStatus, metrics: Metrics, at: float) -> Result:
    """A member's result; `at`: now, in seconds since the epoch."""
    last = member.attempts[-1] if member.attempts else None
    return Result(
        run=now.id,
        directory=str(run.path),
        member=member.member,
        state=member.word,
        code=last.code if last and member.state == "ended" else None,
        attempts=len(member.attempts),
        seconds=_seconds(member, at),
        why="; ".join(map(printable, why(last.failure, last.reason))) if last else "",
        parameters=metrics.parameters,
        metrics={name: summarised(column) for name, column in columns(metrics).items()},
    )


def results(runs: Iterable[tuple[RunDirectory, RunStatus]], at: float) -> list[Result]:
    """The results of all members of runs, in the order of these.

    Raises:
        CastoffError: a run directory cannot be read.
    """
    return [
        result_of(run, now, member, metrics_of(run, member.member), at)
        for run, now in runs
        for member in now.members
    ]


class Column(NamedTuple):
    """One metric: its steps, and the value at each, which may not be finite."""

    steps: list[float]
    values: list[float]

    @property
    def finite(self) -> Column:
        """The same without what cannot be drawn or compared."""
        if all(map(math.isfinite, self.values)):
            return self
        kept = [at for at, value in enumerate(self.values) if math.isfinite(value)]
        return Column([self.steps[at] for at in kept], [self.values[at] for at in kept])


def columns(metrics: Metrics) -> dict[str, Column]:
    """All metrics, in the order in which they first appeared. There may be millions of values."""
    found: dict[str, Column] = {}
    for report in metrics.reports:
        step = report.step
        for name, value in report.values.items():
            column = found.get(name)
            if column is None:
                column = found[name] = Column([], [])
            column.steps.append(step)
            column.values.append(value)
    return found


def summarised(column: Column) -> Values:
    """A metric in brief."""
    good, number = column.finite, len(column.values)

    def point(value: float) -> Point:
        return Point(good.steps[good.values.index(value)], value)

    return Values(
        number=number,
        last=Point(column.steps[-1], column.values[-1]),
        smallest=point(min(good.values)) if good.values else None,
        largest=point(max(good.values)) if good.values else None,
        odd=number - len(good.values),
        first_odd=next((one for one in map(Point, *column) if not math.isfinite(one.value)), None)
        if len(good.values) < number
        else None,
    )


def _seconds(member: MemberStatus, at: float) -> float | None:
    """What its attempts took together: not the hours or days between two submissions."""
    known = [seconds for attempt in member.attempts if (seconds := attempt.seconds(at)) is not None]
    return sum(known) if known else None
