"""All runs at a glance: from the index where it knows how they ended, by a look at each of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted, find_run_directories
from launcher.runs.index import Entry, Index
from launcher.runs.run import Run
from launcher.runs.states import RunStatus, RunSummary, summary
from launcher.status.survey import Scene
from launcher.status.watch import Asking, judge

_BATCH = 512
"""Runs that are looked at before what was seen is written down: an interrupt costs no more."""


class Row(NamedTuple):
    """A run and what a list shows of it."""

    entry: Entry
    told: RunSummary

    @property
    def run(self) -> Run:
        """The run."""
        return self.entry.run

    @property
    def submitted(self) -> float:
        """When it was submitted, or became known, in seconds since the epoch."""
        return self.told.submitted or self.told.started or self.entry.added


class Overview:
    """The runs in the index."""

    def __init__(self, index: Index, *, names: Collection[str] = (), patience: float | None = None):
        """Look at every run that may not be over, and ask schedulers about those that leave a doubt.

        `names`: only at runs whose name is one of these, where * stands for anything. `patience`: seconds for
        a scheduler's answer (default: what a busy one may take).

        Raises:
            CastoffError: the index cannot be read.
        """
        self.notes: list[str] = []
        """What a person should know: runs that were left out, an index that cannot be written."""
        self._index = index
        self._seen: dict[str, RunSummary] = {}
        entries = index.entries()
        self.known = len(entries)
        """Runs in the index, whether their directories are there or not."""
        if names:
            entries = [entry for entry in entries if any(fnmatchcase(entry.name, one) for one in names)]
        to_look = [entry for entry in entries if entry.ended is None and entry.is_there]
        doubtful: list[tuple[Entry, Scene]] = []
        for start in range(0, len(to_look), _BATCH):
            looked = [(entry, _look(entry)) for entry in to_look[start : start + _BATCH]]
            self._take(looked)
            doubtful += [(entry, look.scene) for entry, look in looked if look.scene]
        self._ask(doubtful, patience)
        seen = ((entry, entry.ended or self._seen.get(entry.path)) for entry in entries)
        self.rows = [Row(entry, told) for entry, told in seen if told]
        """Oldest first; that those the index knows are still on disk is seen only when they are chosen."""

    def choose(
        self, wanted: Callable[[Row], bool] = lambda _: True, newest: int | None = None
    ) -> tuple[list[Row], int]:
        """The wanted runs on disk, oldest first, and the number of those left out, on disk or not.

        With `newest`, only so many of those that are over, and all that are not.
        """
        chosen, left_out, room = [], 0, newest
        for row in reversed(self.rows):
            if not wanted(row):
                continue
            if room == 0 and row.told.over:
                left_out += 1
            elif row.entry.is_there:
                chosen.append(row)
                if room is not None and row.told.over:
                    room -= 1
        return chosen[::-1], left_out

    def _ask(self, doubtful: list[tuple[Entry, Scene]], patience: float | None) -> None:
        """Ask about all runs whose records leave a doubt: one question to each scheduler."""
        asking, scenes = Asking(patience), [scene for _, scene in doubtful]
        answers = judge(scenes, asking)
        self._take([(entry, _told(now)) for (entry, _), now in zip(doubtful, answers, strict=True)])
        unknown = (scene for scene, now in zip(scenes, answers, strict=True) if now.state == "unknown")
        for silence, count in Counter(filter(None, map(asking.silence_on, unknown))).items():
            runs = "1 run is" if count == 1 else f"{count} runs are"
            self.notes.append(f"{silence}: {runs} shown as unknown, and may go on")

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
    """A run about which its scheduler has to be asked."""


def _look(entry: Entry) -> _Look:
    try:
        check_trusted(Path(entry.path))
    except CastoffError as error:
        return _Look(refusal=str(error) if entry.is_there else None)
    try:
        scene = Scene(entry.run)
        if scene.queued and scene.needs_queue():
            return _Look(scene=scene)
        (now,) = judge([scene])
    except CastoffError as error:
        return _Look(RunSummary(name=entry.name, state="unknown", ending="unknown", reason=str(error)))
    return _told(now)


def _told(now: RunStatus) -> _Look:
    return _Look(summary(now), now.final)


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
    directories, refused = find_run_directories(folder)
    known = {entry.path: entry for entry in index.entries()}
    there = [Entry(str(path), path.name, 0.0) for path in directories]
    looks = {entry.path: _look(entry) for entry in there}
    doubtful = {path: look.scene for path, look in looks.items() if look.scene}
    looks |= zip(doubtful, map(_told, judge([*doubtful.values()])), strict=True)
    news = [
        (entry.run, look.told, look.final)
        for entry in there
        if (look := looks[entry.path]).told
        and (entry.path not in known or known[entry.path].ended not in (None, look.told))
    ]
    index.adopt(news)
    return Rebuilt(len(there), sum(entry.path not in known for entry in there), refused)
