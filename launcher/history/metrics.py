"""What a program reports in CASTOFF_METRICS_FILE: lines of JSON. Pure.

A line is an object: `{"step": 120, "time": 1764230400.5, "train/loss": 0.31}`. All numbers other than `step`,
`time`, `epoch` and `total_steps` are metrics of that step. NaN and Infinity count, as Python writes them, so
that a diverged loss is not shown as the last finite one. A line without metrics describes the lines that
follow: `total_steps` is the total number of steps. Any line may describe the program: `folder`, the folder of
its results; `parameters`, an object of its parameters; `packages`, an object of package versions; `device`,
the name of its device.

Each attempt has a file. A run's metrics are those of its attempts in order, without the steps that a later
attempt has repeated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from castoff.launcher.history.metric_lines import finite_number
from castoff.launcher.history.stretches import Part, Stretch, joined_parts, part_of


class Report(NamedTuple):
    """The metrics of one line."""

    step: float
    values: Mapping[str, float]
    time: float | None = None
    """Seconds since the epoch."""
    epoch: float | None = None


class Point(NamedTuple):
    """One value of a curve."""

    step: float
    value: float


def finite(points: Iterable[Point]) -> list[Point]:
    """The points with finite values, which can be drawn and compared."""
    return [point for point in points if math.isfinite(point.value)]


def step_words(step: float) -> str:
    """A step with all its digits, `1,234,567`, so that it can be found in the program's output."""
    return f"{step:,.0f}" if float(step).is_integer() and abs(step) < 1e15 else f"{step:,g}"


@dataclass
class Metrics:
    """What a member of a run has reported, over all its attempts."""

    reports: list[Report] = field(default_factory=list)
    """In the order of their steps."""
    step: float | None = None
    """The step of the newest line; None if there is no line."""
    total_steps: float | None = None
    """The total number of steps, if the program has reported it."""
    time: float | None = None
    """When the newest line was written, in seconds since the epoch."""
    folder: str | None = None
    """The folder with the program's results."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The program's parameters by path, as `training.batch_size`."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages that the program uses, by name."""
    device: str | None = None
    """The device on which the program computes, as `NVIDIA A100-SXM4-40GB` or `cpu`."""

    restarts: list[float] = field(default_factory=list)
    """The first steps of later attempts."""
    older: Sequence[Stretch] = ()
    """The reports before `reports`, if these are only the newest: see `MetricsReader`."""

    @property
    def names(self) -> list[str]:
        """The names of all metrics, in the order of their first appearance."""
        every = (*(stretch.parts for stretch in self.older), *(report.values for report in self.reports))
        return list(dict.fromkeys(itertools.chain.from_iterable(every)))

    @property
    def last(self) -> dict[str, float]:
        """The newest value of each metric, which may not be finite."""
        last = {name: part.last[1] for stretch in self.older for name, part in stretch.parts.items()}
        last.update((name, value) for report in self.reports for name, value in report.values.items())
        return last

    def curve(self, name: str) -> list[Point]:
        """The values of a metric by step; some may not be finite. Of `older` reports, only the points
        that they keep.
        """
        kept = itertools.chain.from_iterable(part.points for part in self.parts(name))
        newest = [Point(report.step, report.values[name]) for report in self.reports if name in report.values]
        return [*itertools.starmap(Point, kept), *newest]

    def parts(self, name: str) -> list[Part]:
        """The values of a metric in each of the `older` stretches."""
        return [stretch.parts[name] for stretch in self.older if name in stretch.parts]

    def whole(self, name: str) -> Part | None:
        """A summary of all values of a metric; None if there are none."""
        newest = [(report.step, report.values[name]) for report in self.reports if name in report.values]
        part = part_of([step for step, _ in newest], [value for _, value in newest])
        parts = [*self.parts(name), *([part] if part else [])]
        return reduce(joined_parts, parts) if parts else None

    def best(self, name: str, *, largest: bool) -> Point | None:
        """The best finite value of a metric with its step, the earliest if several are equal; None if
        there is none.
        """
        points = finite(self.curve(name))
        return (max if largest else min)(points, key=lambda point: point.value, default=None)

    def columns(self) -> dict[str, list[float | None]]:
        """The reports as columns of the same length: `step`, `epoch`, `time`, and each metric. Without the
        `older` ones.
        """
        rows = self.reports
        columns: dict[str, list[float | None]] = {"step": [row.step for row in rows]}
        for name in ("epoch", "time"):
            if any(getattr(report, name) is not None for report in rows):
                columns[name] = [getattr(report, name) for report in rows]
        return columns | {name: [report.values.get(name) for report in rows] for name in self.names}

    def begin(self, line: Mapping[str, Any]) -> None:
        """Process a line that describes what follows. Reports of later steps are dropped, since the program
        repeats these steps.
        """
        step = finite_number(line.get("step")) or 0.0
        self.reports = [report for report in self.reports if report.step <= step]
        self.total_steps = finite_number(line.get("total_steps"))

    def describe(self, line: Mapping[str, Any]) -> None:
        """Process the description of the program in a line."""
        folder, parameters = line.get("folder"), line.get("parameters")
        self.folder = folder if isinstance(folder, str) else self.folder
        self.parameters = flat(parameters) if isinstance(parameters, dict) else self.parameters
        packages, device = line.get("packages"), line.get("device")
        if isinstance(packages, dict):
            self.packages = {name: one for name, one in packages.items() if isinstance(one, str)}
        self.device = device if isinstance(device, str) else self.device

    def add(self, report: Report) -> None:
        """Add the metrics of a step. Earlier reports of the same or later steps are dropped."""
        if self.reports and report.step < self.reports[-1].step:
            self.reports = [earlier for earlier in self.reports if earlier.step < report.step]
        self.reports.append(report)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested data: `{"a": {"b": 1}}` becomes `{"a.b": 1}`. Lists stay whole."""
    paths: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        paths |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return paths
