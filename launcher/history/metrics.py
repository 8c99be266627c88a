"""Reads what a program reports in CASTOFF_METRICS_FILE: lines of JSON, read while they are written.

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
import json
import math
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.runs.run import RunDirectory

METRICS = "metrics.jsonl"
"""The name of this file in an attempt's folder."""

_LONGEST_LINE = 1 << 20
"""Bytes; longer lines are ignored."""

_UNTIMED = 10
"""The maximum number of lines that are searched for the first time."""

_RECENT = 100
"""The number of newest reports that are always kept."""

_ABOUT = ("step", "time", "epoch", "total_steps")
"""Numbers that are not metrics."""

_BEGINS = {"total_steps", "folder", "parameters", "packages", "device"}
"""A line with one of these and without metrics describes the lines that follow."""


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
    """In the order of their steps, if the program reported them in order."""
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

    @property
    def names(self) -> list[str]:
        """The names of all metrics, in the order of their first appearance."""
        return list(dict.fromkeys(name for report in self.reports for name in report.values))

    @property
    def last(self) -> dict[str, float]:
        """The newest value of each metric, which may not be finite."""
        return {name: value for report in self.reports for name, value in report.values.items()}

    def curve(self, name: str) -> list[Point]:
        """The values of a metric by step; some may not be finite."""
        return [Point(report.step, report.values[name]) for report in self.reports if name in report.values]

    def best(self, name: str, *, largest: bool) -> Point | None:
        """The best finite value of a metric with its step, the earliest if several are equal; None if
        there is none.
        """
        points = finite(self.curve(name))
        value = (max if largest else min)((point.value for point in points), default=None)
        return next((one for one in points if one.value == value), None)

    def columns(self) -> dict[str, list[float | None]]:
        """The reports as columns of the same length: `step`, `epoch`, `time`, and each metric."""
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
        step = _number(line.get("step")) or 0.0
        self.reports = [report for report in self.reports if report.step <= step]
        self.total_steps = _number(line.get("total_steps"))

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

    def thin(self, most: int) -> None:
        """Keep the newest reports and about `most` others: the last one with each set of metrics, and
        others at equal distances.
        """
        older, newest = self.reports[:-_RECENT], self.reports[-_RECENT:]
        kinds = {frozenset(report.values) for report in older}
        distance = (self.reports[-1].step - self.reports[0].step) * len(kinds) / most
        after: dict[frozenset[str], float] = {}
        kept: list[Report] = []
        for report in reversed(older):
            kind = frozenset(report.values)
            if kind not in after or report.step <= after[kind] - distance:
                after[kind] = report.step
                kept.append(report)
        self.reports = [*kept[most::-1], *newest]


class MetricsReader:
    """Reads a member's metrics repeatedly; each call of `look` reads only new lines."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: the maximum number of reports, of which older ones are thinned out; None: no maximum."""
        self.metrics = Metrics()
        self.behind = False
        """Whether the last `look` ended before everything was read."""
        self._most = most
        self._epochs = _Epochs()
        self._has_steps = False
        """Whether any line had metrics and a step; a line without a step then belongs to the last step."""
        self._read: dict[Path, int] = {}
        """The number of bytes read of each file."""

    def look(self, files: Iterable[Path], give_up: float = math.inf) -> Metrics:
        """Read what was added to the files of the attempts, in order.

        Files that cannot be read and lines that are not JSON objects are skipped. `give_up`: when to leave
        the rest to the next call, by `time.monotonic`.
        """
        self.behind = False
        for path in files:
            for line, end in _lines(path, self._read.get(path, 0)):
                self._read[path] = end
                if isinstance(line, dict):
                    self._take(line)
                if time.monotonic() > give_up:
                    self.behind = True
                    return self.metrics
        return self.metrics

    def _take(self, line: Mapping[str, Any]) -> None:
        metrics = self.metrics
        about = {name: number for name in _ABOUT if (number := _number(line.get(name))) is not None}
        values = {
            name: value
            for name, item in line.items()
            if (value := _value(item)) is not None and name not in _ABOUT
        }
        metrics.time = about.get("time", metrics.time)
        describes = not _BEGINS.isdisjoint(line)
        if describes:
            metrics.describe(line)
        if describes and not values:
            metrics.begin(line)
            self._epochs = _Epochs()
            metrics.step = about.get("step", 0.0)
            return
        metrics.total_steps = about.get("total_steps", metrics.total_steps)
        if "step" in about:
            step = self._epochs.counted(about["step"], about.get("epoch"), metrics.step)
            self._has_steps = True
        elif metrics.step is None:
            step = 0.0
        else:  # without steps, count lines
            step = metrics.step + (not self._has_steps)
        metrics.step = step
        if values:
            metrics.add(Report(step, values, about.get("time"), about.get("epoch")))
            if self._most is not None and len(metrics.reports) > self._most:
                metrics.thin(self._most // 2)


class _Epochs:
    """Counts steps over all epochs, even if the program numbers them from the start in each epoch.

    If the step decreases in a later epoch, the program counts the steps of each epoch. If it decreases in the
    same or an earlier epoch, steps are repeated, as by an attempt that resumes from a checkpoint.
    """

    def __init__(self) -> None:
        self._before: dict[float, float] = {}
        """The total number of steps before each epoch in which the step count restarted, by epoch."""
        self._offset = 0.0
        self._newest: float | None = None

    def counted(self, step: float, epoch: float | None, last: float | None) -> float:
        """The step counted over all epochs; `last`: the counted step of the previous line."""
        if epoch is not None and epoch != self._newest:
            later = self._newest is not None and epoch > self._newest
            begun = max((one for one in self._before if one <= epoch), default=None)
            self._offset = 0.0 if begun is None else self._before[begun]
            if later and last is not None and step + self._offset < last:
                self._offset = self._before[epoch] = last + (step == 0)
            self._newest = epoch
        return step + self._offset


def metrics_files(run: RunDirectory, member: int, attempts: Iterable[int] | None = None) -> list[Path]:
    """The files of a member's attempts, in order. `attempts`: their numbers, if they are known; otherwise the
    folders of all members are listed.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    if attempts is not None:
        return [run.path / "attempts" / f"{member}.{number}" / METRICS for number in attempts]
    return [folder / METRICS for number, _, folder in run.attempts() if number == member]


def metrics_of(run: RunDirectory, member: int = 0, attempts: Iterable[int] | None = None) -> Metrics:
    """Read what a member has reported so far; `attempts` as in `metrics_files`.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    return MetricsReader().look(metrics_files(run, member, attempts))


def first_time(path: Path) -> float | None:
    """When the first line with a time was written, in seconds since the epoch; None: not known."""
    objects = (line for line, _ in _lines(path, 0) if isinstance(line, dict))
    times = (_number(line.get("time")) for line in itertools.islice(objects, _UNTIMED))
    return next((moment for moment in times if moment is not None), None)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested data: `{"a": {"b": 1}}` becomes `{"a.b": 1}`. Lists stay whole."""
    paths: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        paths |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return paths


def _lines(path: Path, start: int) -> Iterator[tuple[Any, int]]:
    """Decode the whole lines of a file from byte `start` on (None: not JSON), each with its end's offset."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    with os.fdopen(descriptor, "rb") as file:
        file.seek(start)
        while data := file.readline(_LONGEST_LINE):
            if not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                return  # the line is still being written
            yield _decoded(data), file.tell()


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # four times as fast as json
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # json also reads NaN and lone surrogates, which Python writes
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> float | None:
    """A finite number; None for any other value."""
    number = _value(value)
    return number if number is not None and math.isfinite(number) else None


def _value(value: object) -> float | None:
    """A number as a float, including NaN and infinities; None for other values and too large numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
