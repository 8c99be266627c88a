"""Looks at runs again and again, in threads of its own: what they bring is the newest `Seen`.

One thread reads files, the other asks schedulers: one that hangs for half a minute holds up nothing but the
news of its own runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.listing import deadline_of, explained
from castoff.launcher.history.metrics import MetricsReader, metrics_files
from castoff.launcher.history.progress import Progress, progress_of
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus, RunSummary, summary
from castoff.launcher.screen.detail import Detail, detail_of
from castoff.launcher.screen.listing import Item
from castoff.launcher.status.overview import Overview, Row
from castoff.launcher.status.poller import LOOK_INTERVAL, Poller

_SHARE = 20
"""Times longer than a look takes, the next one waits at least."""

_READS = 1.0
"""Seconds of a look for what programs report: a file of hundreds of megabytes takes several looks."""

_TURN = 0.05
"""Seconds of that which every run has at least."""

_KEPT = 10_000
"""Reports of a run that are kept."""

_FIRST_READS = 0.3
"""Seconds of a look for the metrics of runs that are over, each of which is read once."""

NEWEST = 20
"""Runs that are over and shown, unless all are wanted."""


class Opened(NamedTuple):
    """The run that is shown by itself."""

    path: str
    member: int | None = None
    """None: the one that a reader most likely wants to see."""


class Seen(NamedTuple):
    """What the looks so far have brought."""

    items: Sequence[Item] = ()
    left_out: int = 0
    """Runs that are over and not among them."""
    detail: Detail | None = None
    """Of the run that is opened."""
    notes: Sequence[str] = ()
    """What a person should know."""
    time: float | None = None
    """When the files were looked at, in seconds since the epoch; None: not yet."""


class _Answer(NamedTuple):
    """What a scheduler has said of a run, when it had begun so often."""

    begun: int
    status: RunStatus


class Looker:
    """Keeps `seen` up to date from `start` to `stop`."""

    def __init__(self, index: Index, interval: float = LOOK_INTERVAL, poller: Poller | None = None):
        """`interval`: seconds between two looks at files; `poller` knows when a scheduler is asked."""
        self.seen = Seen()
        self.poller = poller or Poller()
        self._index = index
        self._interval = interval
        self._opened: Opened | None = None
        self._everything = False
        self._readers: dict[str, MetricsReader] = {}
        self._give_up = 0.0
        """When this look reads no more of what programs report, by `time.monotonic`."""
        self._behind = False
        """Whether something of that was left to the next look."""
        self._over: dict[tuple[str, int], Progress] = {}
        self._reasons: dict[tuple[str, int], str | None] = {}
        """Why runs failed, by the logs of their scripts."""
        self._answers: dict[str, _Answer] = {}
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._to_ask: Overview | None = None
        self._asks = threading.Condition()
        self._notes: list[str] = []
        self._begun: float | None = None
        self._silence: str | None = None
        self._answered: float | None = None

    # For the screen: each returns at once

    def start(self) -> None:
        """Begin to look."""
        for work in (self._look_again, self._ask_again):
            threading.Thread(target=work, daemon=True, name=work.__name__).start()

    def stop(self) -> None:
        """Look no more; what is under way is left to itself."""
        self._stopped.set()
        self._wake.set()
        with self._asks:
            self._asks.notify_all()

    def open(self, opened: Opened | None) -> None:
        """Look also at all that is shown of one run, from now on."""
        self._opened = opened
        self._wake.set()

    def show_everything(self, everything: bool) -> None:
        """Whether all runs that are over are wanted, or only the newest."""
        self._everything = everything
        self._wake.set()

    def look_now(self) -> None:
        """Look at once, as after something was done."""
        self._wake.set()

    def look_lasts(self) -> float:
        """For how many seconds files are being read by now; 0: they are not."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def unanswered(self) -> str | None:
        """What to say of a scheduler that has not answered for a while; None: each has."""
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
            took = time.monotonic() - begun
            self._wake.wait(self._interval if self._behind else max(self._interval, _SHARE * took))

    def _look(self) -> Seen:
        opened = self._opened
        self._give_up, self._behind = time.monotonic() + _READS, False
        overview = Overview(self._index, also=[opened.path] if opened else [])
        known = dict(overview.statuses)
        asking = {entry.path: self._last_known(entry.path, entry.begun) for entry, _ in overview.doubtful}
        rows = [row for row in overview.rows if row.entry.path not in asking]
        for entry, records in overview.doubtful:
            answer = asking[entry.path]
            rows.append(Row(entry, summary(answer) if answer else _not_yet(records.plan.site, entry.name)))
        known |= {path: one for path, one in asking.items() if one is not None}
        self._hand_over(overview)
        chosen, left_out = _chosen(rows, None if self._everything else NEWEST)
        items = self._items(chosen, known)
        found = self._detail(opened, known) if opened else None
        return Seen(items, left_out, found, [*overview.notes, *self._notes], time.time())

    def _last_known(self, path: str, begun: int) -> RunStatus | None:
        answer = self._answers.get(path)
        return answer.status if answer and answer.begun == begun else None

    def _items(self, rows: Sequence[Row], known: Mapping[str, RunStatus]) -> list[Item]:
        give_up = time.monotonic() + _FIRST_READS
        found = []
        for row in rows:
            path, now = row.entry.path, known.get(row.entry.path)
            row = self._explained(row, now)
            if row.summary.members > 1:
                found.append(Item(row, None, None))
            elif row.summary.state == "running":
                progress = self._progress(path, _started(now) or 0.0)
                found.append(Item(row, progress, deadline_of(now) if now else None))
            else:
                key = (path, row.entry.begun)
                if row.summary.over and key not in self._over and time.monotonic() < give_up:
                    progress = self._progress(path, 0.0)
                    if not self._readers[path].behind:
                        self._over[key] = progress
                        self._readers.pop(path)
                found.append(Item(row, self._over.get(key)))
        return found

    def _explained(self, row: Row, status: RunStatus | None) -> Row:
        """A row that says why its run failed, if the log of its script alone knows: it is read once."""
        key = (row.entry.path, row.entry.begun)
        if row.summary.ending == "failed" and not row.summary.reason and key not in self._reasons:
            self._reasons[key] = explained(row.summary, row.entry.path, status).reason
        reason = row.summary.reason or self._reasons.get(key)
        return row._replace(summary=msgspec.structs.replace(row.summary, reason=reason))

    def _progress(self, directory: str, since: float, member: int = 0) -> Progress:
        """How far a member is; nothing is known where its files cannot be read, or are not read yet."""
        name = f"{directory}/{member}" if member else directory
        reader = self._readers.setdefault(name, MetricsReader(_KEPT))
        # Each gets its turn, also beside one that has much to read.
        give_up = max(self._give_up, time.monotonic() + _TURN)
        try:
            metrics = reader.look(metrics_files(RunDirectory(Path(directory)), member), give_up)
        except (CastoffError, OSError):
            return Progress()
        if reader.behind:
            self._behind = True
            return Progress()
        return progress_of(metrics, since)

    def _detail(self, opened: Opened, known: Mapping[str, RunStatus]) -> Detail | None:
        now = known.get(opened.path)
        if now is None:
            return None
        return detail_of(now, opened.member, self._progress)

    # Schedulers

    def _hand_over(self, overview: Overview) -> None:
        """Have the other thread ask about the runs whose records leave a doubt, unless it is still asking."""
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
            own_silence = self.poller.silence_on(records.run)
            silence = own_silence or silence
            if not (now.unsettled and last and own_silence):
                answers[entry.path] = _Answer(entry.begun, now)
            # Else what was known of it is more than nothing.
        self._silence, self._notes = silence, []
        if not self.poller.unanswered():
            self._answered, self._notes = time.monotonic(), list(overview.notes[before:])
        if answers != self._answers:
            self._answers = answers
            self._wake.set()


def _chosen(rows: Sequence[Row], newest: int | None) -> tuple[list[Row], int]:
    """The runs whose directories are there, and how many that are over are left out."""
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


def _started(now: RunStatus | None) -> float | None:
    """When the newest attempt of a run without an array began."""
    attempts = now.members[0].attempts if now and now.members else []
    return attempts[-1].started if attempts else None
