"""Reads the states of runs repeatedly, in its own threads, into the newest `Seen`.

One thread reads files, the other asks schedulers, so that a scheduler that hangs for half a minute delays
only the states of its own runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.listing import deadline_of, explained
from castoff.launcher.history.progress import Progress, progress_of
from castoff.launcher.history.reading import FEW_STRETCHES, MetricsReader, metrics_files
from castoff.launcher.logs.silence import Silences
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, RunStatus, RunSummary, summary
from castoff.launcher.screen.detail import Detail, detail_of
from castoff.launcher.screen.listing import Item
from castoff.launcher.status.overview import Overview, Row
from castoff.launcher.status.poller import LOOK_INTERVAL, Poller

_SHARE = 20
_LONGEST_PAUSE = 30.0
"""The pause after reading all files: a multiple of the time that the reading took, and at most so many
seconds, because a file system may have been silent for minutes.
"""

_READS = 1.0
"""Seconds for reading programs' reports before the screen is updated: a file of hundreds of megabytes takes
several updates.
"""

_TURN = 0.05
"""The minimum number of seconds for reading the reports of one run."""

_FIRST_READS = 0.3
"""Seconds for reading the metrics of runs that are over before the screen is updated; each run is read once.
"""

NEWEST = 20
"""The number of runs that are over and shown, unless all are requested."""


class Opened(NamedTuple):
    """The run whose details are shown."""

    path: str
    member: int | None = None
    """None: the most interesting member."""


class Seen(NamedTuple):
    """All that was read so far."""

    items: Sequence[Item] = ()
    left_out: int = 0
    """The number of runs that are over and not in `items`."""
    detail: Detail | None = None
    """The details of the opened run."""
    notes: Sequence[str] = ()
    """Notices for the user."""
    time: float | None = None
    """When the files were read, in seconds since the epoch; None: not yet."""


class _Answer(NamedTuple):
    """A scheduler's last answer about a run, and how often the run had been started again by then."""

    begun: int
    status: RunStatus


class Looker:
    """Keeps `seen` up to date from `start` to `stop`."""

    def __init__(
        self,
        index: Index,
        interval: float = LOOK_INTERVAL,
        poller: Poller | None = None,
        names: Sequence[str] = (),
    ):
        """`interval`: seconds between two readings of files; `poller`: decides when a scheduler is asked;
        `names`: read only runs whose name, or whose group's name, matches one of these patterns.
        """
        self._names = names
        self.seen = Seen()
        self.failure: Exception | None = None
        """The exception that has ended a thread."""
        self.poller = poller or Poller()
        self._index = index
        self._interval = interval
        self._opened: Opened | None = None
        self._everything = False
        self._readers: dict[str, MetricsReader] = {}
        self._give_up = 0.0
        """When to stop reading programs' reports until the next update, by `time.monotonic`."""
        self._behind = False
        """Whether some reports remain to be read at the next update."""
        self._with_queues = False
        self._queues: dict[str, str] = {}
        """The queues of runs, by directory."""
        self._over: dict[tuple[str, int], Progress] = {}
        self._silences = Silences()
        self._reasons: dict[tuple[str, int], str | None] = {}
        """Why runs failed, according to their scripts' logs."""
        self._answers: dict[str, _Answer] = {}
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._to_ask: Overview | None = None
        self._asks = threading.Condition()
        self._notes: list[str] = []
        self._begun: float | None = None
        self._silence: str | None = None
        self._answered: float | None = None

    # Methods for the screen, which return at once

    def start(self) -> None:
        """Start the threads."""
        for work in (self._look_again, self._ask_again):
            threading.Thread(target=self._run, args=[work], daemon=True, name=work.__name__).start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the application reports it
            self.failure = error

    def stop(self) -> None:
        """Let the threads end after their current work, without waiting for them."""
        self._stopped.set()
        self._wake.set()
        with self._asks:
            self._asks.notify_all()

    def open(self, opened: Opened | None) -> None:
        """Read the details of one run as well, from now on; None: stop this."""
        self._opened = opened
        self._wake.set()

    def show_everything(self, everything: bool) -> None:
        """Set whether all runs that are over are shown, or only the newest."""
        self._everything = everything
        self._wake.set()

    def show_queues(self, with_queues: bool) -> None:
        """Set whether the queues of runs are read."""
        if with_queues != self._with_queues:
            self._with_queues = with_queues
            self._wake.set()

    def look_now(self) -> None:
        """Read all files at once, because something has changed."""
        self._wake.set()

    def look_lasts(self) -> float:
        """Seconds since the current reading of files began; 0 if no files are being read."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def unanswered(self) -> str | None:
        """A notice about schedulers that have not answered for a while; None if all have."""
        words = [
            f"{title} has not answered for {seconds:.0f} s"
            for title, seconds in self.poller.unanswered().items()
            if seconds >= 2 * self._interval
        ]
        if not words:
            return None
        because = f" ({self._silence})" if self._silence else ""
        if self._answered is None:
            return f"{', '.join(words)}{because}"
        age = time.monotonic() - self._answered
        return f"{', '.join(words)}; its runs are shown as of {age:.0f} s ago{because}"

    # Files

    def _look_again(self) -> None:
        while not self._stopped.is_set():
            begun = self._begun = time.monotonic()
            self._wake.clear()
            try:
                self.seen = self._look()
            except (CastoffError, OSError) as error:
                self.seen = self.seen._replace(notes=[str(error)], time=time.time())
            self._begun = None
            self._wake.wait(self._pause(time.monotonic() - begun))

    def _pause(self, took: float) -> float:
        """Seconds until files are read again, if reading them took so many seconds."""
        return self._interval if self._behind else max(self._interval, min(_SHARE * took, _LONGEST_PAUSE))

    def _look(self) -> Seen:
        opened = self._opened
        self._give_up, self._behind = time.monotonic() + _READS, False
        overview = Overview(self._index, names=self._names, also=[opened.path] if opened else [])
        statuses = dict(overview.statuses)
        asking = {entry.path: self._last_known(entry.path, entry.begun) for entry, _ in overview.doubtful}
        rows = [row for row in overview.rows if row.entry.path not in asking]
        for entry, records in overview.doubtful:
            answer = asking[entry.path]
            rows.append(Row(entry, summary(answer) if answer else _not_yet(records.plan.site, entry.name)))
        statuses |= {path: one for path, one in asking.items() if one is not None}
        self._hand_over(overview)
        chosen, left_out = _chosen(rows, None if self._everything else NEWEST)
        items = self._items(chosen, statuses)
        detail = self._detail(opened, statuses) if opened else None
        return Seen(items, left_out, detail, [*overview.notes, *self._notes], time.time())

    def _last_known(self, path: str, begun: int) -> RunStatus | None:
        answer = self._answers.get(path)
        return answer.status if answer and answer.begun == begun else None

    def _items(self, rows: Sequence[Row], statuses: Mapping[str, RunStatus]) -> list[Item]:
        give_up = time.monotonic() + _FIRST_READS
        items: dict[str, Item] = {}
        for row in sorted(rows, key=self._unread):
            path, now = row.entry.path, statuses.get(row.entry.path)
            row = self._explained(row, now)
            if row.summary.members > 1:
                items[path] = Item(row, None, None)
            elif row.summary.state == "running":
                attempt = _newest_attempt(now)
                progress = self._progress(path, (attempt and attempt.started) or 0.0)
                silent = self._silences.since(attempt, time.time()) if attempt else None
                items[path] = Item(row, progress, deadline_of(now) if now else None, silent)
            else:
                key = (path, row.entry.begun)
                if row.summary.over and key not in self._over and time.monotonic() < give_up:
                    progress = self._progress(path, 0.0)
                    if not self._readers[path].behind:
                        self._over[key] = progress
                        self._readers.pop(path)
                items[path] = Item(row, self._over.get(key))
        return [items[row.entry.path]._replace(queue=self._queue(row.entry.path, give_up)) for row in rows]

    def _queue(self, path: str, give_up: float) -> str:
        """A run's queue, if it is shown, and there is time to read it."""
        if self._with_queues and path not in self._queues and time.monotonic() < give_up:
            try:
                self._queues[path] = RunDirectory(Path(path)).facts().queue or ""
            except (CastoffError, OSError):
                self._queues[path] = ""
        return self._queues.get(path, "")

    def _unread(self, row: Row) -> tuple[bool, int]:
        """The sort key of a run: running ones come first, and those with little to read."""
        over = row.summary.over
        if row.summary.members > 1 or (over and (row.entry.path, row.entry.begun) in self._over):
            return over, 0
        try:
            return over, self._reader(row.entry.path).unread(
                metrics_files(RunDirectory(Path(row.entry.path)), 0)
            )
        except (CastoffError, OSError):
            return over, 0

    def _reader(self, name: str) -> MetricsReader:
        return self._readers.setdefault(name, MetricsReader(FEW_STRETCHES))

    def _explained(self, row: Row, status: RunStatus | None) -> Row:
        """Add the reason of a failure to a row, if only the log of the run's script has it. The log is read
        once.
        """
        key = (row.entry.path, row.entry.begun)
        if row.summary.ending == "failed" and not row.summary.reason and key not in self._reasons:
            self._reasons[key] = explained(row.summary, row.entry.path, status).reason
        reason = row.summary.reason or self._reasons.get(key)
        return row._replace(summary=msgspec.structs.replace(row.summary, reason=reason))

    def _progress(self, directory: str, since: float, member: int = 0) -> Progress:
        """The progress of a member; empty if its files cannot be read, or not in the time for reading."""
        name = f"{directory}/{member}" if member else directory
        reader = self._reader(name)
        # Each run gets some time, even if another has much to read.
        give_up = max(self._give_up, time.monotonic() + _TURN)
        try:
            metrics = reader.look(metrics_files(RunDirectory(Path(directory)), member), give_up)
        except (CastoffError, OSError):
            return Progress()
        if reader.behind:
            self._behind = True
            return Progress()
        return progress_of(metrics, since)

    def _detail(self, opened: Opened, statuses: Mapping[str, RunStatus]) -> Detail | None:
        now = statuses.get(opened.path)
        if now is None:
            return None
        return detail_of(now, opened.member, self._progress, self._silences)

    # Schedulers

    def _hand_over(self, overview: Overview) -> None:
        """Have the other thread ask about the runs whose state the records leave in doubt."""
        if overview.doubtful:
            with self._asks:
                self._to_ask = overview
                self._asks.notify_all()

    def _ask_again(self) -> None:
        while not self._stopped.is_set():
            with self._asks:
                self._asks.wait_for(lambda: self._to_ask is not None or self._stopped.is_set())
                overview, self._to_ask = self._to_ask, None
            if overview is not None and not self._stopped.is_set():
                self._ask(overview)

    def _ask(self, overview: Overview) -> None:
        before = len(overview.notes)
        try:
            overview.ask(self.poller)
        except (CastoffError, OSError) as error:
            self._notes = [str(error)]
            return
        answers, silence = dict(self._answers), None
        for entry, records in overview.doubtful:
            now, last = overview.statuses[entry.path], answers.get(entry.path)
            why_unanswered = self.poller.silence_on(records.run)
            silence = why_unanswered or silence
            if not (now.unsettled and last and why_unanswered):
                answers[entry.path] = _Answer(entry.begun, now)
            # Otherwise, keep the last answer, which is better than none.
        self._silence, self._notes = silence, []
        if not self.poller.unanswered():
            self._answered, self._notes = time.monotonic(), list(overview.notes[before:])
        if answers != self._answers:
            self._answers = answers
            self._wake.set()


def _chosen(rows: Sequence[Row], newest: int | None) -> tuple[list[Row], int]:
    """The runs with directories, of which at most `newest` are over, and the number of those left out."""
    chosen, left_out, room = [], 0, newest
    for row in sorted(rows, key=lambda row: -row.entry.added):
        if row.summary.over and room == 0:
            left_out += 1
        elif row.entry.is_there:
            chosen.append(row)
            if row.summary.over and room is not None:
                room -= 1
    return chosen, left_out


def _not_yet(site: str, name: str) -> RunSummary:
    return RunSummary(
        name=name,
        site=site,
        state="unknown",
        ending="unknown",
        reason="its scheduler is being asked",
        unsettled=True,
    )


def _newest_attempt(now: RunStatus | None) -> AttemptStatus | None:
    """The newest attempt of the first member."""
    attempts = now.members[0].attempts if now and now.members else []
    return attempts[-1] if attempts else None
