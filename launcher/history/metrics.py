"""What a program reports as it runs: lines of JSON in CASTOFF_METRICS_FILE, read while they are written.

A line is an object: `{"step": 120, "time": 1764230400.5, "train/loss": 0.31}`. Every other number in it is
a metric of that step, also NaN and Infinity, as Python writes them: a loss that has become one must not look
like the last good one. A line without metrics says what follows: `total_steps`, how many there will be. Any
line may say what is known of the program: `folder`, where it keeps its results; `parameters`, an object of
what it was started with; `packages`, an object of the versions that it uses; `device`, the name of what it
computes on.

Each attempt has a file. A run's metrics are those of its attempts, one after the other, without the steps
that a later attempt has done again.
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
"""The file in an attempt's folder."""

_LONGEST_LINE = 1 << 20
"""Bytes; a longer line is not one of metrics."""

_UNTIMED = 10
"""Lines at the beginning that may have no time where later ones have."""

_RECENT = 100
"""The newest reports, which always stay."""

_ABOUT = ("step", "time", "epoch", "total_steps")
"""Numbers that are not metrics."""

_BEGINS = {"total_steps", "folder", "parameters", "packages", "device"}
"""Without metrics beside them, these make a line one that says what follows."""


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
    """The points of a curve that can be drawn and compared."""
    return [point for point in points if math.isfinite(point.value)]


def step_words(step: float) -> str:
    """A step with all its digits, `1,234,567`: it is looked for in a program's own output."""
    return f"{step:,.0f}" if float(step).is_integer() and abs(step) < 1e15 else f"{step:,g}"


@dataclass
class Metrics:
    """What a member of a run has reported, over all its attempts."""

    reports: list[Report] = field(default_factory=list)
    """In the order of their steps, as far as the program kept to one."""
    step: float | None = None
    """The step of the newest line; None while there is none."""
    total_steps: float | None = None
    """How many there will be, if the program has said so."""
    time: float | None = None
    """When the newest line was written, in seconds since the epoch."""
    folder: str | None = None
    """Where the program keeps its results."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with: values by their path, as in `training.batch_size`."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages that it uses, by name."""
    device: str | None = None
    """What it computes on, as in `NVIDIA A100-SXM4-40GB` or `cpu`."""

    @property
    def names(self) -> list[str]:
        """The metrics, in the order in which they first appeared."""
        return list(dict.fromkeys(name for report in self.reports for name in report.values))

    @property
    def last(self) -> dict[str, float]:
        """The newest value of each metric; it may not be finite."""
        return {name: value for report in self.reports for name, value in report.values.items()}

    def curve(self, name: str) -> list[Point]:
        """The values of a metric by step; some may not be finite."""
        return [Point(report.step, report.values[name]) for report in self.reports if name in report.values]

    def best(self, name: str, *, largest: bool) -> Point | None:
        """The best finite value of a metric, and its step: the earliest of equal ones; None: it has none."""
        points = finite(self.curve(name))
        value = (max if largest else min)((point.value for point in points), default=None)
        return next((one for one in points if one.value == value), None)

    def columns(self) -> dict[str, list[float | None]]:
        """The reports as columns of the same length: `step`, `epoch`, `time`, and each metric."""
        rows = self.reports
        found: dict[str, list[float | None]] = {"step": [row.step for row in rows]}
        for name in ("epoch", "time"):
            if any(getattr(one, name) is not None for one in rows):
                found[name] = [getattr(one, name) for one in rows]
        return found | {name: [one.values.get(name) for one in rows] for name in self.names}

    def begin(self, line: Mapping[str, Any]) -> None:
        """Take in a line that says what follows: later steps are done again from there."""
        step = _number(line.get("step")) or 0.0
        self.reports = [report for report in self.reports if report.step <= step]
        self.total_steps = _number(line.get("total_steps"))

    def describe(self, line: Mapping[str, Any]) -> None:
        """Take in what a line says of the program."""
        folder, parameters = line.get("folder"), line.get("parameters")
        self.folder = folder if isinstance(folder, str) else self.folder
        self.parameters = flat(parameters) if isinstance(parameters, dict) else self.parameters
        packages, device = line.get("packages"), line.get("device")
        if isinstance(packages, dict):
            self.packages = {name: one for name, one in packages.items() if isinstance(one, str)}
        self.device = device if isinstance(device, str) else self.device

    def add(self, report: Report) -> None:
        """Take in the metrics of a step. Where steps begin again, what was reported of them before goes."""
        if self.reports and report.step < self.reports[-1].step:
            self.reports = [one for one in self.reports if one.step < report.step]
        self.reports.append(report)

    def thin(self, most: int) -> None:
        """Keep about so many reports beside the newest: of each kind the last, and others at even steps."""
        older, newest = self.reports[:-_RECENT], self.reports[-_RECENT:]
        kinds = {frozenset(one.values) for one in older}
        apart = (self.reports[-1].step - self.reports[0].step) * len(kinds) / most
        after: dict[frozenset[str], float] = {}
        kept: list[Report] = []
        for one in reversed(older):
            kind = frozenset(one.values)
            if kind not in after or one.step <= after[kind] - apart:
                after[kind] = one.step
                kept.append(one)
        self.reports = [*kept[most::-1], *newest]


class MetricsReader:
    """The metrics of a member, read as they come: each look reads what is new."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: reports that are kept, fewer and fewer of the older ones; None: all."""
        self.metrics = Metrics()
        self.behind = False
        """Whether the last look has given up before it had read everything."""
        self._most = most
        self._epochs = _Epochs()
        self._has_steps = False
        """Whether a line with metrics has had a step: then one without belongs to the last."""
        self._read: dict[Path, int] = {}
        """How many bytes of each file have been read."""

    def look(self, files: Iterable[Path], give_up: float = math.inf) -> Metrics:
        """Read what was added to the files of the attempts, the first of them first.

        A file that cannot be read, or holds other things, adds nothing. `give_up`: when to leave the rest to
        the next look, by `time.monotonic`.
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
            for name, one in line.items()
            if (value := _value(one)) is not None and name not in _ABOUT
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
        else:  # lines are counted, if none has a step
            step = metrics.step + (not self._has_steps)
        metrics.step = step
        if values:
            metrics.add(Report(step, values, about.get("time"), about.get("epoch")))
            if self._most is not None and len(metrics.reports) > self._most:
                metrics.thin(self._most // 2)


class _Epochs:
    """Counts steps that begin again in each epoch over all of them.

    A step that goes back in a later epoch begins again. One that goes back in the same epoch, or with it, is
    done again, as by an attempt that resumes from a checkpoint.
    """

    def __init__(self) -> None:
        self._before: dict[float, float] = {}
        """The total number of steps before each epoch in which the step count restarted, by epoch."""
        self._offset = 0.0
        self._newest: float | None = None

    def counted(self, step: float, epoch: float | None, last: float | None) -> float:
        """The step over all epochs; `last`: that of the line before."""
        if epoch is not None and epoch != self._newest:
            later = self._newest is not None and epoch > self._newest
            begun = max((one for one in self._before if one <= epoch), default=None)
            self._offset = 0.0 if begun is None else self._before[begun]
            if later and last is not None and step + self._offset < last:
                self._offset = self._before[epoch] = last + (step == 0)
            self._newest = epoch
        return step + self._offset


def metrics_files(run: RunDirectory, member: int) -> list[Path]:
    """The files of a member's attempts, the first of them first.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    return [folder / METRICS for number, _, folder in run.attempts() if number == member]


def metrics_of(run: RunDirectory, member: int = 0) -> Metrics:
    """What a member has reported so far; empty if that is nothing.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    return MetricsReader().look(metrics_files(run, member))


def first_time(path: Path) -> float | None:
    """When an attempt's first line with a time was written, in seconds since the epoch; None: not known."""
    objects = (line for line, _ in _lines(path, 0) if isinstance(line, dict))
    times = (_number(line.get("time")) for line in itertools.islice(objects, _UNTIMED))
    return next((one for one in times if one is not None), None)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested data by paths: `{"a": {"b": 1}}` is `{"a.b": 1}`. Lists stay whole."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found


def _lines(path: Path, start: int) -> Iterator[tuple[Any, int]]:
    """What the whole lines of a file hold from a byte on (None: it is not JSON), and the byte after it."""
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
                return  # it is being written
            yield _decoded(data), file.tell()


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # four times as fast
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # it may still be what Python writes: NaN, lone surrogates
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> float | None:
    """A finite number of a line; None for all else."""
    number = _value(value)
    return number if number is not None and math.isfinite(number) else None


def _value(value: object) -> float | None:
    """A line's value as a float, NaN and infinities included; None if it is not a number, or too large for
    a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
