"""All runs at a glance: from the index where it knows how they ended, by a look at each of the others."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.runs.directory import DEPTH, check_trusted, find_run_directories
from launcher.runs.index import Entry, Index
from launcher.runs.run import Run
from launcher.runs.states import RunSummary, summary
from launcher.status.survey import Scene
from launcher.status.watch import Asking, by_records, judge

_BATCH = 512
"""Runs that are looked at before what was seen is written down: an interrupt costs no more."""

_SAMPLE = 32
"""Runs that are looked at one after the other, to see how long a look takes."""

_SLOW = 0.004
"""Seconds for a look from which on threads are worth it: what waits for a parallel file system can wait
together. On a local disk, where it takes a quarter of a millisecond, they stand in each other's way."""

_THREADS = 16


class Row(NamedTuple):
    """A run and what a list shows of it."""

    entry: Entry
    told: RunSummary

    @property
    def run(self) -> Run:
        """The run."""
        return self.entry.run

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen, as far as is known."""
        return self.told.state == "ended" or (self.told.state == "unknown" and not self.told.unsettled)

    @property
    def submitted(self) -> float:
        """When it was submitted, or became known, in seconds since the epoch."""
        return self.told.submitted or self.told.started or self.entry.added


class Overview:
    """The runs in the index."""

    def __init__(
        self,
        index: Index,
        *,
        names: Collection[str] = (),
        announce: Callable[[int], None] | None = None,
        ask: bool = True,
    ):
        """Look at every run that may not be over; `announce` is told how many they are.

        `names`: only at runs whose name is one of these, where * stands for anything. `ask`: False where
        schedulers are asked later, by `ask`.

        Raises:
            CastoffError: the index cannot be read.
        """
        self.notes: list[str] = []
        """What a person should know: runs that were left out, an index that cannot be written."""
        self._shelves = _Shelves()
        self._index = index
        self._doubtful: dict[str, tuple[Entry, Scene]] = {}
        self._seen: dict[str, RunSummary] = {}
        entries = index.entries()
        self.known = len(entries)
        """Runs in the index, whether their directories are there or not."""
        if names:
            entries = [entry for entry in entries if any(fnmatchcase(entry.name, one) for one in names)]
        to_look = [entry for entry in entries if entry.ended is None and self._shelves.hold(entry.path)]
        if announce and to_look:
            announce(len(to_look))
        for start in range(0, len(to_look), _BATCH):
            batch = to_look[start : start + _BATCH]
            looked = list(zip(batch, _look_at_each(batch), strict=True))
            self._take(looked)
            self._doubtful |= {entry.path: (entry, look.scene) for entry, look in looked if look.scene}
        self.rows = [
            Row(entry, told) for entry in entries if (told := entry.ended or self._seen.get(entry.path))
        ]
        """Oldest first; that those the index knows are still on disk is seen only when they are chosen."""
        if ask:
            self.ask()

    def is_doubtful(self, row: Row) -> bool:
        """Whether a scheduler has still to be asked about a run, of which its records tell until then."""
        return row.entry.path in self._doubtful

    def ask(self, patience: float | None = None) -> None:
        """Ask about all runs whose records leave a doubt: one question to each scheduler.

        `patience`: seconds for an answer (default: what a busy scheduler may take).
        """
        asking = Asking(patience)
        entries, scenes = (
            [entry for entry, _ in self._doubtful.values()],
            [one for _, one in self._doubtful.values()],
        )
        looks = _judge(scenes, asking)
        self._take(list(zip(entries, looks, strict=True)))
        self._doubtful = {}
        self.rows = [row._replace(told=self._seen.get(row.entry.path, row.told)) for row in self.rows]
        told = zip(scenes, looks, strict=True)
        silences = [
            asking.silence_on(one) for one, look in told if look.told and look.told.state == "unknown"
        ]
        for silence, count in Counter(filter(None, silences)).items():
            runs = "1 run is" if count == 1 else f"{count} runs are"
            self.notes.append(f"{silence}: {runs} shown as unknown, and may go on")

    def now(self, rows: list[Row]) -> list[Row]:
        """These rows as they are after `ask`."""
        by_path = {row.entry.path: row for row in self.rows}
        return [by_path[row.entry.path] for row in rows]

    def choose(
        self, wanted: Callable[[Row], bool] = lambda _: True, newest: int | None = None
    ) -> tuple[list[Row], int]:
        """The wanted runs on disk, oldest first, and the number of those left out.

        With `newest`, only so many of those that are over, and all that are not.
        """
        chosen, left_out, room = [], 0, newest
        for row in reversed(self.rows):
            if not wanted(row):
                continue
            if room == 0 and row.is_over:
                left_out += self._shelves.may_hold(row.entry.path)
            elif self._shelves.hold(row.entry.path):
                chosen.append(row)
                if room is not None and row.is_over:
                    room -= 1
        return chosen[::-1], left_out

    def _take(self, looked: list[tuple[Entry, _Look]]) -> None:
        self._seen |= {entry.path: look.told for entry, look in looked if look.told}
        self.notes += [look.refusal for _, look in looked if look.refusal]
        try:
            self._index.remember([(entry, look.told) for entry, look in looked if look.told and look.final])
        except CastoffError as error:
            if str(error) not in self.notes:
                self.notes.append(str(error))


class _Look(NamedTuple):
    told: RunSummary | None = None
    final: bool = False
    refusal: str | None = None
    """Why nothing is told, where that should be known."""
    scene: Scene | None = None
    """A run about which Slurm has to be asked."""


def _look_at_each(entries: list[Entry]) -> list[_Look]:
    begun = time.monotonic()
    looks = [_look(entry) for entry in entries[:_SAMPLE]]
    rest = entries[_SAMPLE:]
    if (time.monotonic() - begun) / _SAMPLE < _SLOW:
        return [*looks, *map(_look, rest)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as threads:
        return [*looks, *threads.map(_look, rest)]


def _look(entry: Entry) -> _Look:
    try:
        check_trusted(Path(entry.path))
    except CastoffError as error:
        return _Look(refusal=str(error) if entry.is_there else None)
    try:
        scene = Scene(entry.run)
        if scene.queued and scene.needs_queue():
            return _Look(summary(by_records(scene)), scene=scene)
        (now,) = judge([scene])
    except CastoffError as error:
        return _Look(RunSummary(name=entry.name, state="unknown", ending="unknown", reason=str(error)))
    return _Look(summary(now), now.final)


def _judge(scenes: list[Scene], asking: Asking) -> list[_Look]:
    """Looks that end with one question to each scheduler for all of them."""
    return [_Look(summary(now), now.final) for now in judge(scenes, asking)]


class Rebuilt(NamedTuple):
    """What a search for runs has brought."""

    found: int
    new: int
    notes: list[str]
    """What was left out, and why."""


def rebuild(index: Index, folder: Path) -> Rebuilt:
    """Add the runs in a folder and below to the index, and correct what it says of those it has.

    Raises:
        CastoffError: the folder cannot be read, or the index not written.
    """
    found = find_run_directories(folder)
    known = {entry.path: entry for entry in index.entries()}
    there = [Entry(str(path), path.name, 0.0) for path in found.directories]
    looks = _look_at_each(there)
    answers = iter(_judge([look.scene for look in looks if look.scene], Asking()))
    news = [
        (entry.run, look.told, look.final)
        for entry, look in zip(there, (next(answers) if one.scene else one for one in looks), strict=True)
        if look.told and (entry.path not in known or known[entry.path].ended not in (None, look.told))
    ]
    index.adopt(news)
    beyond = f"more than {DEPTH} below {folder} not looked into; name one of them"
    counts = ((found.unread, "could not be read"), (found.too_deep, beyond))
    told = [f"{count} folder{'' if count == 1 else 's'} {words}" for count, words in counts if count]
    notes = [*found.refused, *told]
    return Rebuilt(len(there), sum(entry.path not in known for entry in there), notes)


class _Shelves(dict[str, "frozenset[str] | None"]):
    """What folders of runs hold, by one look at each; None: each name has to be looked for."""

    def __missing__(self, folder: str) -> frozenset[str] | None:
        try:
            names: frozenset[str] | None = frozenset(os.listdir(folder or "/"))  # noqa: PTH208 - names alone
        except PermissionError:
            names = None
        except OSError:
            names = frozenset()
        return self.setdefault(folder, names)

    def hold(self, path: str) -> bool:
        """Whether something of that name is there."""
        folder, _, name = path.rpartition("/")
        names = self[folder]
        return os.path.lexists(path) if names is None else name in names

    def may_hold(self, path: str) -> bool:
        """Whether something of that name is there, as far as can be said without a look at the disk."""
        folder, _, name = path.rpartition("/")
        return (names := self.get(folder)) is None or name in names
