"""The states of all runs: from the index if it has a run's ending, otherwise from the run's records."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import find_run_directories, is_run_directory
from castoff.launcher.runs.groups import GroupJob, is_group_id, name_of_group
from castoff.launcher.runs.index import Entry, Index, record_runs
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus, RunSummary, summary
from castoff.launcher.runs.sweep import Sweep, sweep_of
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge


class Row(NamedTuple):
    """A run, and what a list of runs shows of it."""

    entry: Entry
    summary: RunSummary

    @property
    def run(self) -> RunDirectory:
        """The run's directory."""
        return self.entry.run

    @property
    def submitted(self) -> float:
        """When the run was submitted, or was added to the index, in seconds since the epoch."""
        return self.summary.submitted or self.summary.started or self.entry.added


class Overview:
    """The states of the runs in the index, from their records; after `ask`, also from their schedulers'
    answers.
    """

    def __init__(self, index: Index, *, names: Collection[str] = (), also: Collection[str] = ()):
        """Read the records of every run that may not be over yet.

        `names`: read only runs whose name, or whose group's name or id, matches one of these patterns, in
        which * stands for any text.
        `also`: the directories of runs to read in any case.

        Raises:
            CastoffError: the index cannot be read.
        """
        self.notes: list[str] = []
        """Messages for the user, about runs that were left out or an index that cannot be written."""
        self.statuses: dict[str, RunStatus] = {}
        """The status of each run whose records were read, by the run's directory."""
        self._index = index
        self._seen: dict[str, RunSummary] = {}
        entries = index.entries()
        self.known = len(entries)
        """The number of runs in the index, including runs whose directories are gone."""
        if names:
            entries = [entry for entry in entries if any(map(entry.matches, names))]
        self._entries = entries
        to_look = [entry for entry in entries if entry.ended is None or entry.path in also]
        self.doubtful = self._look(filter(self._is_trusted, to_look))
        """The records of the runs whose state only their schedulers know."""

    @classmethod
    def asked(cls, index: Index, *, names: Collection[str] = (), poller: Poller | None = None) -> Overview:
        """Return the runs in the index; `poller` asks their schedulers.

        Raises:
            CastoffError: the index cannot be read.
        """
        found = cls(index, names=names)
        found.ask(poller or Poller())
        return found

    @property
    def rows(self) -> list[Row]:
        """The runs in the index, oldest first. `choose` checks whether their directories still exist."""
        seen = ((entry, entry.ended or self._seen.get(entry.path)) for entry in self._entries)
        return [Row(entry, one) for entry, one in seen if one]

    def ask(self, poller: Poller) -> None:
        """Ask the schedulers about all runs whose records leave their state open: at most one query to each
        scheduler.
        """
        answers = judge([records for _, records in self.doubtful], poller)
        looked = [(entry, now) for (entry, _), now in zip(self.doubtful, answers, strict=True)]
        self._keep(looked)
        asked = [records.run for _, records in self.doubtful]
        unknown = (run for run, now in zip(asked, answers, strict=True) if now.state == "unknown")
        silences = map(poller.silence_on, unknown)
        for silence, count in Counter(filter(None, silences)).items():
            runs = "1 run is" if count == 1 else f"{count} runs are"
            self.notes.append(f"{silence}: {runs} shown as unknown, and may still be running")

    def choose(
        self, wanted: Callable[[Row], bool] = lambda _: True, newest: int | None = None
    ) -> tuple[list[Row], int]:
        """Choose the wanted runs that are on disk, oldest first, and count the runs that are left out.

        `newest`: how many of the runs that are over to choose, newest first.
        """
        chosen, left_out, room = [], 0, newest
        for row in reversed(self.rows):
            if not wanted(row):
                continue
            if room == 0 and row.summary.over:
                left_out += 1
            elif row.entry.is_there:
                chosen.append(row)
                if room is not None and row.summary.over:
                    room -= 1
        return chosen[::-1], left_out

    def _is_trusted(self, entry: Entry) -> bool:
        """Whether a run's directory is trusted; a directory that is not adds a note for the user."""
        if not entry.is_there:
            return False
        try:
            return bool(entry.run)
        except CastoffError as error:
            self.notes.append(str(error))
            return False

    def _look(self, entries: Iterable[Entry]) -> list[tuple[Entry, RunRecords]]:
        """Read the records of runs. Return the records of runs whose schedulers have to be asked."""
        looked, doubtful = [], []
        for entry in entries:
            try:
                records = RunRecords(entry.run)
                if records.queued and records.needs_queue():
                    doubtful.append((entry, records))
                else:
                    (now,) = judge([records])
                    looked.append((entry, now))
            except CastoffError as error:
                self._seen[entry.path] = RunSummary(
                    name=entry.name, state="unknown", ending="unknown", reason=str(error)
                )
        self._keep(looked)
        return doubtful

    def _keep(self, looked: Collection[tuple[Entry, RunStatus]]) -> None:
        """Keep a run's status, and store an ending in the index if only a new attempt could change it."""
        found = [(entry, summary(now), now.final) for entry, now in looked]
        self._seen |= {entry.path: one for entry, one, _ in found}
        self.statuses |= {entry.path: now for entry, now in looked}
        try:
            self._index.remember([(entry, one) for entry, one, final in found if final and not entry.ended])
        except CastoffError as error:
            if str(error) not in self.notes:
                self.notes.append(str(error))


def alone_in(folder: Path) -> list[RunDirectory]:
    """Return this user's runs in a folder that are missing from the index because their scripts were run
    without castoff.
    """
    found = []
    with contextlib.suppress(OSError):  # the working directory itself may be gone
        for path in sorted(folder.resolve().glob("castoff-*")):
            if is_run_directory(path):
                with contextlib.suppress(CastoffError):  # another user's run, in a shared folder
                    found.append(RunDirectory(path))
    return found


def adopt_unlisted(environ: Mapping[str, str], runs: Iterable[RunDirectory]) -> None:
    """Add runs to the user's index that are missing there."""

    def add(index: Index) -> None:
        known = {entry.path for entry in index.entries()}
        new = [run for run in runs if str(run.path) not in known]
        if new:
            index.adopt((run, *_facts_for_index(run)) for run in new)

    record_runs(environ, add, "runs in this folder that were not submitted by castoff are not listed")


class Rebuilt(NamedTuple):
    """The result of a search for runs."""

    found: int
    new: int
    notes: list[str]
    """Messages about what was left out, each with the reason."""


def rebuild(index: Index, folder: Path) -> Rebuilt:
    """Add all runs below a folder to the index, which forgets the endings that it had stored for them.

    Raises:
        CastoffError: the folder cannot be read, or the index not written.
    """
    directories, refused = find_run_directories(folder)
    known = {entry.path for entry in index.entries()}
    runs = [RunDirectory(path) for path in directories]
    index.adopt((run, *_facts_for_index(run)) for run in runs)
    _restore_groups(index, runs)
    return Rebuilt(len(directories), sum(str(path) not in known for path in directories), refused)


def _restore_groups(index: Index, runs: Iterable[RunDirectory]) -> None:
    """Write the journals of groups that are lost, and the places of runs that were moved."""
    found: dict[str, list[tuple[RunDirectory, Submission]]] = {}
    for run in runs:
        with contextlib.suppress(CastoffError):  # it cannot be read
            record = run.submission()
            if record and record.group and is_group_id(record.group):
                found.setdefault(record.group, []).append((run, record))
    groups = index.groups
    for group_id, members in found.items():
        members.sort(key=lambda member: _first_time(member[1]))
        names = {run.id: run.facts().name for run, _ in members}
        jobs = [_group_job(run, record, names) for run, record in members]
        if (group := groups.read(group_id)) is None:
            groups.begin(
                group_id, {"name": name_of_group(group_id), "directory": members[0][1].directory}, jobs
            )
            continue
        for job in jobs:
            known = group.jobs.get(job.job)
            if known and known.run != job.run and known.directory is None:
                group.put(GroupJob(job.job, job.run, known.after, known.fields))
                group.mark_sent(group.jobs[job.job])


def _first_time(record: Submission) -> float:
    """When a run was submitted for the first time."""
    return (record.earlier or [record])[0].time or 0.0


def _group_job(run: RunDirectory, record: Submission, names: Mapping[str, str]) -> GroupJob:
    """A job of a group from its run. `names`: the names of the group's jobs by the ids of their runs."""
    first = (record.earlier or [record])[0]
    after = {
        condition: [names[Path(path).name] for path in paths if Path(path).name in names]
        for condition, paths in first.after.items()
    }
    edges = {condition: others for condition, others in after.items() if others}
    return GroupJob(names[run.id], str(run.path), edges, sent=True)


def _facts_for_index(run: RunDirectory) -> tuple[str, float, str | None, Sweep]:
    """Return a run's name, the time of its submission, or else of its start, its group, and what its members
    sweep; the id and 0 if the run cannot be read.
    """
    try:
        records, sweep = RunRecords(run), sweep_of(parameters_of(run).parameters)
    except CastoffError:
        return run.id, 0.0, None, {}
    began = (one.start.time for found in records.attempts.values() for one in found if one.start)
    submitted = records.submission.time if records.submission else None
    group = records.submission.group if records.submission else None
    return records.plan.name or run.id, submitted or min(filter(None, began), default=0.0), group, sweep
