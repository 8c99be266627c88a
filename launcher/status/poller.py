"""Decides when castoff queries a scheduler: one query for all runs, none if the records suffice, and less
often the longer nothing changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.base_queue import NOT_QUERIED, Answer
from castoff.launcher.schedulers.command import PATIENCE
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.status import scheduler_view
from castoff.launcher.status.attempt import LAST_WORD
from castoff.launcher.status.settle import decide
from castoff.launcher.status.survey import RunRecords

AT_A_GLANCE = 5.0
"""Seconds that an interactive command waits for a scheduler's answer."""

LOOK_INTERVAL = 2.0
"""Seconds between two reads of the records of runs that a person watches. Schedulers are queried less
often.
"""

_SHORTEST_PAUSE = 2.0
_LONGEST_PAUSE = 30.0
"""The shortest and longest pause between two queries to a scheduler, in seconds: the longer no record has
changed, the longer the pause. A site's `poll_interval`, which is in the plans of the site's runs, is another
minimum; of several sites' minimums, the largest counts.
"""


class Poller:
    """Queries schedulers about their runs when a query is due."""

    def __init__(self, patience: float | None = None) -> None:
        """`patience`: seconds to wait for an answer (default: as long as a busy scheduler may take)."""
        self._patience = patience
        self._sides: dict[str, _Side] = {}

    def silence_on(self, run: RunDirectory) -> str | None:
        """Return why the last query could not tell the state of a run; None if it could, or if there was no
        query.
        """
        return next(filter(None, (side.silence_on(run) for side in self._sides.values())), None)

    def unanswered(self) -> dict[str, float]:
        """Return the schedulers that have not answered, including one that is being queried, each with the
        seconds since the query.

        Any thread may call this. The known states of these schedulers' runs are older than the query.
        """
        now, sides = clock.now(), list(self._sides.values())
        return {side.title: now - side.owes_since for side in sides if side.owes_since is not None}

    def query(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        """Return a view of each run that is on a scheduler with a queue, by directory, with the run's current
        records.
        """
        found: dict[Path, scheduler_view.SchedulerView] = {}
        theirs: dict[str, list[RunRecords]] = {}
        for records in runs:
            if records.scheduler is not None and records.queued:
                own = theirs.setdefault(records.scheduler.name, [])
                own.append(records)
                if records.scheduler.name not in self._sides:
                    self._sides[records.scheduler.name] = _Side(records.scheduler, self._patience)
        for name, own in sorted(theirs.items()):
            found |= self._sides[name].query(own)
        return found


class _Side:
    """One scheduler, and the runs that were submitted to it."""

    def __init__(self, scheduler: QueuedScheduler, patience: float | None) -> None:
        self._queue = scheduler.queue(patience=patience or PATIENCE)
        self._answer = NOT_QUERIED
        self._elsewhere: dict[Path, str] = {}
        self._history: Mapping[str, list[JobInfo]] | None = None
        self._history_asked = False
        self._records: dict[Path, frozenset[tuple[int, int, bool]]] = {}
        self._jobs: set[str] = set()
        self._asked: float | None = None
        self._changed = 0.0
        self.title = self._queue.title
        self.owes_since: float | None = None
        """When the first of the latest unanswered queries was sent, by the monotonic clock; None if none is
        unanswered."""

    def silence_on(self, run: RunDirectory) -> str | None:
        """Return why the last query could not tell the state of a run; None if it could, or if the run was
        not in the query.
        """
        return self._elsewhere.get(run.path) or (self._answer.silence if run.path in self._records else None)

    def query(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        """Return a view of each run that was submitted to this scheduler."""
        doubtful = [records for records in runs if records.needs_queue()]
        if doubtful and self._is_due(doubtful):
            self._ask(doubtful)
            asked = {run.run.path for run in doubtful}
            further = True
            # Read the records after each answer: a job that has ended since may be missing in the answer.
            while further:
                runs = [self._again(records) if records.run.path in asked else records for records in runs]
                further = self._query_further([records for records in runs if records.run.path in asked])
        return self._judge(runs)

    def _is_due(self, runs: list[RunRecords]) -> bool:
        new = any(run.run.path not in self._records or run.jobs - self._jobs for run in runs)
        if self._asked is None or new:
            return True  # jobs of a new run may be newer than the answer
        changed = any(self._records[run.run.path] != run.state_of_records for run in runs)
        pause = 0.0 if changed else min(_LONGEST_PAUSE, (self._asked - self._changed) / 4)
        least = max(_SHORTEST_PAUSE, *(run.plan.poll_interval for run in runs))
        return clock.now() - self._asked >= max(pause, least)

    def _ask(self, runs: list[RunRecords]) -> None:
        self.owes_since = self.owes_since or clock.now()
        reached = [(run, self._queue.elsewhere(run.clusters)) for run in runs]
        self._elsewhere = {run.run.path: why for run, why in reached if why}
        here = {job for run, why in reached if not why for job in run.jobs}
        self._answer = self._queue.ask(here) if len(self._elsewhere) < len(runs) else NOT_QUERIED
        self._jobs = {job for run in runs for job in run.jobs}
        self._history, self._history_asked = None, False
        self._asked = clock.now()
        if self._answer.silence is None or self._answer.lasting:
            self.owes_since = None
        records = {run.run.path: run.state_of_records for run in runs}
        if records != self._records:
            self._records, self._changed = records, self._asked

    def _query_further(self, runs: list[RunRecords]) -> bool:
        """Query jobs that were submitted during the last query, for example by jobs that resume. Return
        whether there were any such jobs.
        """
        here = [run for run in runs if run.run.path not in self._elsewhere]
        further = {job for run in here for job in run.jobs} - self._jobs
        further -= {job for job, _ in self._answer.jobs}
        if not further or self._answer.silence:
            return False
        self._jobs |= further
        self._answer = self._answer.joined(self._queue.ask(further))
        return True

    def _again(self, records: RunRecords) -> RunRecords:
        """Read a run's records again after the answer: the run may have been submitted meanwhile."""
        try:
            if records.unclear and not records.held and records.run.path not in self._elsewhere:
                decide(records.run, self._queue, self._answer, records.unclear)
            return RunRecords(records.run, held=records.held, earlier=records)
        except (CastoffError, OSError):
            return records  # the submission stays unclear, and the earlier records still count

    def _judge(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        views = {run.run.path: self._view_of(run) for run in runs}
        doubtful = {job for view in views.values() for job in view.doubtful}
        if doubtful and self._asked is not None and not self._history_asked:
            owed, self.owes_since = self.owes_since, self.owes_since or clock.now()
            self._history, self._history_asked = self._queue.history(doubtful), True
            self.owes_since = owed
            if self._history is not None:
                views |= {path: self._view_of(one.records) for path, one in views.items() if one.doubtful}
        for one in views.values():
            # Store the answers, so that nobody queries again; if one cannot be stored, a later query repeats
            # it.
            with contextlib.suppress(OSError, CastoffError):
                for folder, last in one.learnt:
                    one.records.run.write(f"attempts/{folder.name}/{LAST_WORD}", last)
        return views

    def _view_of(self, run: RunRecords) -> scheduler_view.SchedulerView:
        seen = {one[:2] for one in self._records.get(run.run.path, ())}
        if elsewhere := self._elsewhere.get(run.run.path):
            return scheduler_view.SchedulerView(run, self._queue, Answer({}, elsewhere), {}, seen)
        return scheduler_view.SchedulerView(run, self._queue, self._answer, self._history, seen)
