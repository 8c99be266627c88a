"""Reads what a program reports in CASTOFF_METRICS_FILE, while it is written.

Each attempt has a file. A run's metrics are those of its attempts in order, without the steps that a later
attempt has repeated.
"""

from __future__ import annotations

import itertools
import math
import operator
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.history.metric_lines import (
    ABOUT,
    BEGINS,
    Line,
    LineDecoder,
    Numbers,
    Rows,
    any_number,
    finite_number,
    lines_of,
)
from castoff.launcher.history.metrics import Metrics, Report
from castoff.launcher.history.reduction import Reduction, Table
from castoff.launcher.history.stretches import Source, Stretch
from castoff.launcher.runs.run import RunDirectory

METRICS = "metrics.jsonl"
"""The name of this file in an attempt's folder."""

STRETCHES = 2_000
"""The number of stretches for a plot that fills a page."""

FEW_STRETCHES = 400
"""The number of stretches for a curve in a line of a screen, or in a small picture."""

_UNTIMED = 10
"""The maximum number of lines that are searched for the first time."""


_WATCHER: ContextVar[Callable[[int], None] | None] = ContextVar("_WATCHER", default=None)


@contextmanager
def watched(seen: Callable[[int], None]) -> Iterator[None]:
    """Report the number of bytes to `seen` whenever `reduced_metrics_of` has read some."""
    token = _WATCHER.set(seen)
    try:
        yield
    finally:
        _WATCHER.reset(token)


_KEPT: ContextVar[dict[tuple[Path, int], MetricsReader] | None] = ContextVar("_KEPT", default=None)


@contextmanager
def readers_kept() -> Iterator[None]:
    """Let `reduced_metrics_of` read only what was added since its last call for the same member."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


class MetricsReader:
    """Reads a member's metrics repeatedly; each call of `look` reads only new lines."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: the maximum number of stretches to which all reports but the newest are reduced, so that
        millions of them take little time and memory; None: all reports are kept.
        """
        self.metrics = Metrics()
        self.behind = False
        """Whether the last `look` ended before everything was read."""
        self._reduction = Reduction(most, self._read_again) if most is not None else None
        self._decoder = LineDecoder()
        self._state = _State()
        self._line = 0
        """The number of lines so far that are objects."""
        self._read: dict[Path, int] = {}
        """The number of bytes read of each file."""
        self._begun: set[Path] = set()
        """The files that had a step."""

    def look(
        self, files: Iterable[Path], give_up: float = math.inf, seen: Callable[[int], None] | None = None
    ) -> Metrics:
        """Read what was added to the files of the attempts, in order.

        Files that cannot be read and lines that are not JSON objects are skipped. `give_up`: when to leave
        the rest to the next call, by `time.monotonic`. `seen`: is passed the number of bytes whenever some
        were read.
        """
        self.behind = False
        has_more = False
        for path in files:
            for piece in self._pieces(path, self._read.get(path, 0)):
                has_more = True
                self._read[path] = piece.end
                self._take_piece(path, piece)
                if seen is not None:
                    seen(piece.end - piece.start)
                if time.monotonic() > give_up:
                    self.behind = True
                    break
            if self.behind:
                break
        if has_more and self._reduction is not None:
            self.metrics.reports = self._reduction.newest()
            self.metrics.older = self._reduction.stretches
        return self.metrics

    def unread(self, files: Iterable[Path]) -> int:
        """The number of bytes that the next `look` at these files will read."""
        return sum(max(_size(path) - self._read.get(path, 0), 0) for path in files)

    def _pieces(self, path: Path, start: int) -> Iterator[Rows | Line]:
        return lines_of(path, start) if self._reduction is None else self._decoder.read(path, start)

    def _take_piece(self, path: Path, piece: Rows | Line) -> None:
        source = Source(path, piece.start, self._line, self._state.copied())
        if isinstance(piece, Rows):
            self._take_rows(piece, source)
        elif isinstance(piece.content, dict):
            self._line += 1
            self._take(piece.content, source)

    def _take(self, line: Mapping[str, Any], source: Source) -> None:
        metrics = self.metrics
        about = {name: number for name in ABOUT if (number := finite_number(line.get(name))) is not None}
        values = {
            name: value
            for name, item in line.items()
            if (value := any_number(item)) is not None and name not in ABOUT
        }
        metrics.time = about.get("time", metrics.time)
        describes = not BEGINS.isdisjoint(line)
        if describes:
            metrics.describe(line)
        if describes and not values:
            if self._reduction is not None:
                self._reduction.drop(about.get("step", 0.0), equal=False)
            metrics.begin(line)
            self._state = _State(step=about.get("step", 0.0), has_steps=self._state.has_steps)
            metrics.step = self._state.step
            self._note(source.file, about.get("step", 0.0))
            return
        metrics.total_steps = about.get("total_steps", metrics.total_steps)
        metrics.step = step = self._state.counted(about.get("step"), about.get("epoch"))
        self._note(source.file, step)
        if not values:
            return
        report = Report(step, values, about.get("time"), about.get("epoch"))
        if self._reduction is not None:
            self._reduction.add(report, source)
        else:
            metrics.add(report)

    def _take_rows(self, rows: Rows, source: Source) -> None:
        """Process many lines in the same way."""
        assert self._reduction is not None
        metrics = self.metrics
        for description in rows.descriptions:
            metrics.describe(description)
        metrics.time = metrics.time if rows.times is None else _last(rows.times, metrics.time)
        metrics.total_steps = metrics.total_steps if rows.total_steps is None else rows.total_steps
        steps = self._state.counted_rows(rows.number, rows.steps, rows.epochs)
        metrics.step = steps[-1]
        self._note(source.file, steps[0])
        if not self._reduction.stretches:
            self._reduction.expect(_size(source.file) / (rows.end - rows.start) * rows.number)
        lines = range(self._line, self._line + rows.number)
        self._line += rows.number
        table = Table(source, lines, steps, rows.times, rows.epochs, rows.metrics)
        if rows.has_gaps:
            each = zip(*rows.metrics.values(), strict=True)
            table = table.chosen([any(value is not None for value in values) for values in each])
        if table.steps:
            self._reduction.add_table(table)

    def _note(self, attempt: Path, step: float) -> None:
        """Note the first step of each attempt but the first; what it repeats had no later restarts."""
        if self._begun and attempt not in self._begun:
            kept = [earlier for earlier in self.metrics.restarts if earlier < step]
            self.metrics.restarts = [*kept, step]
        self._begun.add(attempt)

    def _read_again(self, stretch: Stretch) -> list[Table]:
        """The reports of a stretch, as far as its file can still be read."""
        (path, start, first, state), (begin, end) = stretch.source, stretch.lines
        reader = MetricsReader()
        reader._reduction = reduction = Reduction(1, reader._read_again, recent=math.inf)
        reader._line, reader._state = first, state.restored()
        for line in lines_of(path, start):
            if reader._line > end:
                break
            reader._take_piece(path, line)
        parts = (
            table.part(bisect_left(table.lines, begin), len(table.lines)) for table in reduction.tables()
        )
        return [table for table in parts if table.steps]


class _Saved(NamedTuple):
    """A `_State` at some time."""

    epochs: list[tuple[float, float]]
    known: int
    """How many of these epochs had begun."""
    offset: float
    epoch: float | None
    step: float | None
    has_steps: bool

    def restored(self) -> _State:
        """A copy of the state at that time."""
        state = _State(self.step, has_steps=self.has_steps)
        state.epochs = self.epochs[: self.known]
        state.before = dict(state.epochs)
        state.offset, state.epoch = self.offset, self.epoch
        return state


class _State:
    """Counts steps over all epochs, even if the program numbers them from the start in each epoch, or not at
    all.

    If the step decreases in a later epoch, the program counts the steps of each epoch. If it decreases in the
    same or an earlier epoch, steps are repeated, as by an attempt that resumes from a checkpoint.
    """

    def __init__(self, step: float | None = None, *, has_steps: bool = False) -> None:
        self.step = step
        """The step of the newest line."""
        self.has_steps = has_steps
        """Whether any line had a step; a line without one then belongs to the last step."""
        self.epochs: list[tuple[float, float]] = []
        """The epochs in which the step count restarted, with the total number of steps before them."""
        self.before: dict[float, float] = {}
        """The same by epoch."""
        self.offset = 0.0
        self.epoch: float | None = None

    def copied(self) -> _Saved:
        """The state, to which `restored` returns."""
        return _Saved(self.epochs, len(self.epochs), self.offset, self.epoch, self.step, self.has_steps)

    def counted(self, step: float | None, epoch: float | None) -> float:
        """The counted step of the next line."""
        if step is not None:
            self.has_steps = True
            self.step = self._over_epochs(step, epoch)
        elif self.step is None:
            self.step = 0.0
        else:  # without steps, count lines
            self.step += not self.has_steps
        return self.step

    def counted_rows(self, number: int, steps: Numbers | None, epochs: Numbers | None) -> list[float]:
        """The counted steps of the next lines."""
        if steps is None:
            first = self.counted(None, None)
            rest = [first] * (number - 1) if self.has_steps else [first + more for more in range(1, number)]
            self.step = rest[-1] if rest else first
            return [first, *rest]
        if not self.before and _rises(steps, self.step):
            self.has_steps = True
            self.step = steps[-1]
            self.epoch = self.epoch if epochs is None else _last(epochs, self.epoch)
            return steps  # type: ignore[return-value]
        return [*map(self.counted, steps, epochs or itertools.repeat(None))]

    def _over_epochs(self, step: float, epoch: float | None) -> float:
        if epoch is not None and epoch != self.epoch:
            later = self.epoch is not None and epoch > self.epoch
            begun = max((one for one in self.before if one <= epoch), default=None)
            self.offset = 0.0 if begun is None else self.before[begun]
            if later and self.step is not None and step + self.offset < self.step:
                self.offset = self.before[epoch] = self.step + (step == 0)
                self.epochs.append((epoch, self.offset))
            self.epoch = epoch
        return step + self.offset


def _rises(steps: Numbers, last: float | None) -> bool:
    """Whether all steps are numbers, in order, and after `last`."""
    known: list[float] = steps  # type: ignore[assignment]
    try:
        later = itertools.islice(known, 1, None)
        return (last is None or known[0] >= last) and all(map(operator.le, known, later))
    except TypeError:
        return False


def _last(numbers: Numbers, default: float | None) -> float | None:
    return next((number for number in reversed(numbers) if number is not None), default)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def metrics_files(run: RunDirectory, member: int, attempts: Iterable[int] | None = None) -> list[Path]:
    """The files of a member's attempts, in order. `attempts`: their numbers, if they are known; otherwise the
    folders of all members are listed.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    if attempts is not None:
        return [run.path / "attempts" / f"{member}.{number}" / METRICS for number in attempts]
    return [folder / METRICS for number, _, folder in run.attempts() if number == member]


def metrics_bytes(run: RunDirectory) -> int:
    """The size of the files of all members.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    return sum(_size(folder / METRICS) for _, _, folder in run.attempts())


def metrics_of(run: RunDirectory, member: int = 0, attempts: Iterable[int] | None = None) -> Metrics:
    """Read what a member has reported so far; `attempts` as in `metrics_files`.

    Raises:
        CastoffError: the folder of attempts cannot be read.
    """
    return MetricsReader().look(metrics_files(run, member, attempts))


def reduced_metrics_of(
    run: RunDirectory, member: int = 0, attempts: Iterable[int] | None = None, most: int = STRETCHES
) -> Metrics:
    """The same in little time and memory: of millions of reports, only the newest are kept, and `most`
    stretches of the others. All summaries are exact.
    """
    reader = MetricsReader(most)
    if (kept := _KEPT.get()) is not None:
        reader = kept.setdefault((run.path, member), reader)
    return reader.look(metrics_files(run, member, attempts), seen=_WATCHER.get())


def first_time(path: Path) -> float | None:
    """When the first line with a time was written, in seconds since the epoch; None: not known."""
    objects = (line.content for line in lines_of(path, 0) if isinstance(line.content, dict))
    times = (finite_number(line.get("time")) for line in itertools.islice(objects, _UNTIMED))
    return next((moment for moment in times if moment is not None), None)
