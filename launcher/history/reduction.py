"""Keeps what a member has reported in little memory: the newest reports, and stretches of the older ones.

Later attempts repeat steps, which drops reports from the end. If that cuts a stretch, its lines are read
again, so that no value of a dropped report remains.
"""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from castoff.launcher.history.metric_lines import Numbers
from castoff.launcher.history.metrics import Report
from castoff.launcher.history.stretches import Source, Stretch, joined, part_of, widened

RECENT = 100
"""The minimum number of newest reports that are kept whole."""

_PENDING = 500
"""The number of single reports that become a table."""

_PARTS = 1 << 16
"""About the maximum number of parts of stretches: some ten megabytes."""

_FEWEST = 128
"""The minimum number of stretches, whatever the number of metrics."""


class Table:
    """Consecutive reports of one file as columns."""

    def __init__(
        self,
        source: Source,
        lines: Sequence[int],
        steps: list[float],
        times: Numbers | None,
        epochs: Numbers | None,
        metrics: dict[str, Numbers],
    ):
        self.source = source
        self.lines = lines
        """The number of each report's line."""
        self.steps = steps
        self.times = times
        self.epochs = epochs
        self.metrics = metrics

    def part(self, begin: int, end: int) -> Table:
        """Some of the reports."""
        if begin == 0 and end >= len(self.steps):
            return self
        return Table(
            self.source,
            self.lines[begin:end],
            self.steps[begin:end],
            self.times and self.times[begin:end],
            self.epochs and self.epochs[begin:end],
            {name: values[begin:end] for name, values in self.metrics.items()},
        )

    def chosen(self, is_chosen: Sequence[bool]) -> Table:
        """The reports that are chosen."""

        def some(column: Sequence[Any]) -> list[Any]:
            return [*itertools.compress(column, is_chosen)]

        return Table(
            self.source,
            some(self.lines),
            some(self.steps),
            self.times and some(self.times),
            self.epochs and some(self.epochs),
            {name: some(values) for name, values in self.metrics.items()},
        )

    def reports(self) -> list[Report]:
        """Each report by itself."""
        nothing = [None] * len(self.steps)
        names = [*self.metrics]
        return [
            Report(step, {name: v for name, v in zip(names, values, strict=True) if v is not None}, at, epoch)
            for step, at, epoch, *values in zip(
                self.steps, self.times or nothing, self.epochs or nothing, *self.metrics.values(), strict=True
            )
        ]

    def stretch(self) -> Stretch:
        """The reports as one stretch."""
        parts, begins = {}, {}
        for name, values in self.metrics.items():
            part = part_of(self.steps, values)
            if part is not None:
                parts[name] = part
                begins[name] = 0 if part.number == len(values) else _first(values)
        if any(begins.values()):
            parts = {name: parts[name] for name in sorted(parts, key=begins.__getitem__)}
        first, last = _known(self.times or ()), _known(reversed(self.times or ()))
        return Stretch(
            self.source,
            len(self.steps),
            (self.lines[0], self.lines[-1]),
            (self.steps[0], self.steps[-1]),
            None if first is None or last is None else (first, last),
            parts,
        )


def _known(numbers: Iterable[float | None]) -> float | None:
    return next((number for number in numbers if number is not None), None)


def _first(values: Numbers) -> int:
    return next(index for index, value in enumerate(values) if value is not None)


class Reduction:
    """What a member has reported, in the order of steps."""

    def __init__(self, most: int, read_again: Callable[[Stretch], list[Table]], recent: float | None = None):
        """`most`: the maximum number of stretches; `read_again`: reads the reports of a stretch again;
        `recent`: the minimum number of newest reports that are kept whole.
        """
        self.stretches: list[Stretch] = []
        self._tables: list[Table] = []
        """The reports after those of the stretches."""
        self._pending: list[tuple[Report, int]] = []
        """The reports after those of the tables, with the numbers of their lines."""
        self._pending_source: Source | None = None
        self._most = most
        self._read_again = read_again
        self._recent = RECENT if recent is None else recent
        self._width = 1
        """The maximum number of reports of a stretch."""
        self._names: set[str] = set()

    def expect(self, reports: float) -> None:
        """Begin with stretches for about so many reports, since joining narrower ones takes time."""
        if not self.stretches and reports > self._most * self._width:
            self._width = 1 << math.ceil(math.log2(reports / self._most))

    def add(self, report: Report, source: Source) -> None:
        """Add the report of one line. Earlier reports of the same or later steps are dropped if the step has
        decreased.
        """
        if self._decreases(report.step):
            self.drop(report.step, equal=True)
        if self._pending_source is None or self._pending_source.file != source.file:
            self._tabulate()
            self._pending_source = source
        self._pending.append((report, source.line))
        if len(self._pending) >= _PENDING:
            self._tabulate()

    def add_table(self, table: Table) -> None:
        """Add many reports in the same way."""
        self._tabulate()
        begin = 0
        if not all(map(operator.le, table.steps, itertools.islice(table.steps, 1, None))):
            for end, (step, later) in enumerate(itertools.pairwise(table.steps), 1):
                if later < step:
                    self._add_rising(table.part(begin, end))
                    begin = end
        self._add_rising(table.part(begin, len(table.steps)))

    def drop(self, step: float, *, equal: bool) -> None:
        """Drop all reports of later steps. `equal`: and those of this step."""
        self._tabulate()
        bisect = bisect_left if equal else bisect_right
        while True:
            while self._tables:
                table = self._tables.pop()
                if kept := bisect(table.steps, step):
                    self._tables.append(table.part(0, kept))
                    return
            if not self.stretches or bisect(self.stretches[-1].steps, step) == 2:
                return
            last = self.stretches.pop()
            if bisect(last.steps, step) == 1:
                self._tables = self._read_again(last)

    def newest(self) -> list[Report]:
        """All reports that are after the stretches."""
        self._tabulate()
        return [report for table in self._tables for report in table.reports()]

    def tables(self) -> list[Table]:
        """The same as tables."""
        self._tabulate()
        return self._tables

    def _decreases(self, step: float) -> bool:
        if self._pending:
            return step < self._pending[-1][0].step
        if self._tables:
            return step < self._tables[-1].steps[-1]
        return bool(self.stretches) and step < self.stretches[-1].steps[-1]

    def _tabulate(self) -> None:
        """Make a table of the single reports."""
        if not self._pending or self._pending_source is None:
            return
        reports = [report for report, _ in self._pending]
        names = dict.fromkeys(name for report in reports for name in report.values)
        table = Table(
            self._pending_source,
            [line for _, line in self._pending],
            [report.step for report in reports],
            [report.time for report in reports],
            [report.epoch for report in reports],
            {name: [report.values.get(name) for report in reports] for name in names},
        )
        self._pending, self._pending_source = [], None
        self._append(table)

    def _add_rising(self, table: Table) -> None:
        if self._decreases(table.steps[0]):
            self.drop(table.steps[0], equal=True)
        self._append(table)

    def _append(self, table: Table) -> None:
        self._tables.append(table)
        self._names.update(table.metrics)
        left = sum(len(one.steps) for one in self._tables)
        while (left := left - len(self._tables[0].steps)) >= self._recent:
            self._shorten(self._tables.pop(0))

    def _shorten(self, table: Table) -> None:
        """Put the reports of a table into stretches."""
        begin, end = 0, len(table.steps)
        while begin < end:
            last = self.stretches[-1] if self.stretches else None
            room = self._width - last.reports if last and last.source.file == table.source.file else 0
            if last and room > 0:
                self.stretches[-1] = joined(last, table.part(begin, begin + room).stretch())
                begin += room
            else:
                self.stretches.append(table.part(begin, begin + self._width).stretch())
                begin += self._width
            self._limit()

    def _limit(self) -> None:
        most = max(min(self._most, _PARTS // max(len(self._names), 1)), _FEWEST)
        if len(self.stretches) <= most:
            return
        files = len({one.source.file for one in self.stretches})  # whose stretches are not joined
        while len(self.stretches) > most // 2 + files:
            self._width *= 2
            self.stretches = widened(self.stretches, self._width)
