"""The results of members: their parameters, and the last and best values of their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from castoff.launcher.errors import printable
from castoff.launcher.history.metrics import Metrics, Point
from castoff.launcher.history.reading import reduced_metrics_of
from castoff.launcher.history.stretches import Part, part_of
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus, RunStatus, in_short


class Values(NamedTuple):
    """A summary of the values of one metric of a member."""

    number: int
    """The number of values."""
    last: Point
    """The last value, which may not be finite."""
    smallest: Point | None
    """The smallest finite value, the earliest if several are equal; None if no value is finite."""
    largest: Point | None
    odd: int = 0
    """The number of values that are not finite."""
    first_odd: Point | None = None

    def best(self, *, largest: bool) -> Point | None:
        """The best finite value; None if there is none."""
        return self.largest if largest else self.smallest


@dataclass(frozen=True)
class Result:
    """The result of one member of a run."""

    run: str
    """The run's id."""
    directory: str
    member: int
    state: str
    """The member's ending, or its state if it has not ended."""
    code: int | None
    attempts: int
    seconds: float | None
    """Seconds that all attempts of the member took, until now; None if it never began."""
    why: str
    """Why the member failed; empty if it did not fail, or if the reason is unknown."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The parameters with which the member was started, by path."""
    metrics: Mapping[str, Values] = field(default_factory=dict)


def result_of(
    run: RunDirectory,
    now: RunStatus,
    member: MemberStatus,
    metrics: Metrics,
    at: float,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """A member's result; `at`: the current time in seconds since the epoch. `parameters`: those of the array,
    in addition to those that the program reports.
    """
    last = member.attempts[-1] if member.attempts else None
    return Result(
        run=now.id,
        directory=str(run.path),
        member=member.member,
        state=member.word,
        code=last.code if last and member.state == "ended" else None,
        attempts=len(member.attempts),
        seconds=_seconds(member, at),
        why=printable(in_short(last.failure, last.reason)) if last else "",
        parameters={**parameters, **metrics.parameters},
        metrics={name: summarised(column) for name, column in columns(metrics).items()},
    )


Search: TypeAlias = "Callable[[RunDirectory, MemberStatus, Mapping[str, str]], dict[str, Values]]"
"""Finds further numbers of a member with these parameters."""


def results(
    runs: Iterable[tuple[RunDirectory, RunStatus]], at: float, search: Search | None = None
) -> list[Result]:
    """The results of all members of these runs, in order.

    Raises:
        CastoffError: a run directory cannot be read.
    """
    found = []
    for run, now in runs:
        parameters = parameters_of(run)
        for member in now.members:
            metrics, typed = metrics_of_member(run, member), parameters.typed(member.member)
            result = result_of(run, now, member, metrics, at, typed)
            if search is not None:
                more = search(run, member, parameters.values(member.member))
                result = replace(result, metrics={**result.metrics, **more})
            found.append(result)
    return found


def metrics_of_member(run: RunDirectory, member: MemberStatus) -> Metrics:
    """What a member has reported in the attempts that its status names; of millions of reports, stretches."""
    return reduced_metrics_of(run, member.member, [attempt.attempt for attempt in member.attempts])


class Column(NamedTuple):
    """The values of one metric, which may not be finite, and the step of each. Of very many, only a few, with
    the smallest and the largest of each stretch.
    """

    steps: list[float]
    values: list[float]
    whole: Part | None = None
    """A summary of all values, if these are only some of them."""

    @property
    def number(self) -> int:
        """The number of all finite values."""
        return self.whole.number - self.whole.odd if self.whole else len(self.finite.values)

    @property
    def finite(self) -> Column:
        """The column without values that are not finite."""
        if all(map(math.isfinite, self.values)):
            return self
        kept = [index for index, value in enumerate(self.values) if math.isfinite(value)]
        steps, values = [self.steps[index] for index in kept], [self.values[index] for index in kept]
        return Column(steps, values, self.whole)


def columns(metrics: Metrics) -> dict[str, Column]:
    """The columns of all metrics, in the order of their first appearance."""
    found = {name: Column([], [], metrics.whole(name) if metrics.older else None) for name in metrics.names}
    for stretch in metrics.older:
        for name, part in stretch.parts.items():
            for step, value in part.points:
                found[name].steps.append(step)
                found[name].values.append(value)
    for report in metrics.reports:
        step = report.step
        for name, value in report.values.items():
            column = found[name]
            column.steps.append(step)
            column.values.append(value)
    return found


def summarised(column: Column) -> Values:
    """Summarise the values of a metric."""
    whole = column.whole or part_of(column.steps, column.values)
    assert whole is not None  # a column has values
    smallest, largest = (whole.best(largest=largest) for largest in (False, True))
    return Values(
        number=whole.number,
        last=Point(*whole.last),
        smallest=smallest and Point(*smallest),
        largest=largest and Point(*largest),
        odd=whole.odd,
        first_odd=whole.first_odd and Point(*whole.first_odd),
    )


def _seconds(member: MemberStatus, at: float) -> float | None:
    """The time of all attempts together, without the hours or days between submissions."""
    times = [seconds for attempt in member.attempts if (seconds := attempt.seconds(at)) is not None]
    return sum(times) if times else None
