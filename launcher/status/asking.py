"""When Slurm and PBS are asked about many runs: one question to each for all, and the less often the longer
nothing changes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted
from launcher.runs.records import write
from launcher.runs.run import Run
from launcher.status.scenes import LAST_WORD, Scene, survey

if TYPE_CHECKING:
    from launcher.runs.records import LastWord
    from launcher.schedulers.jobs import JobTold
    from launcher.schedulers.queue import Answer, Queue
    from launcher.status.queued import Known, Told
    from launcher.status.survey import QueuedRun, RecordsState

_ASK = 2.0
_SLOWEST_ASK = 30.0
"""Seconds between two questions to a scheduler: more of them each time that nothing has changed."""
_ASK_LESS = 1.5
"""How many times longer each wait is than the one before."""


class Asking:
    """Asks the schedulers of runs about them when that is due."""

    def __init__(self, patience: float | None = None) -> None:
        """`patience`: seconds for an answer (default: what a busy scheduler may take)."""
        self._patience = patience
        self._sides: dict[str, _Side] = {}

    @property
    def answered(self) -> bool:
        """Whether all that were asked the last time could tell."""
        return all(side.answered for side in self._sides.values())

    def silence_on(self, scene: Scene) -> str | None:
        """Why its scheduler could not tell of a run the last time; None where it did, or was not asked."""
        side = self._sides.get(scene.plan.scheduler) if scene.queued else None
        return side.silence_on(scene.run) if side else None

    def told(self, scenes: list[Scene]) -> tuple[list[Scene], dict[Path, Told]]:
        """What is known of runs on Slurm or PBS, by directory, and all scenes as they are by now."""
        found: dict[Path, Told] = {}
        for scheduler in sorted({scene.plan.scheduler for scene in scenes if scene.queued}):
            side = self._sides.setdefault(scheduler, _Side(scheduler, self._patience))
            own = [scene for scene in scenes if scene.queued and scene.plan.scheduler == scheduler]
            fresh, told = side.told(own)
            found |= told
            by_path = {scene.run.path: scene for scene in fresh}
            scenes = [by_path.get(scene.run.path, scene) for scene in scenes]
        return scenes, found


class _Side:
    """One scheduler, asked about all runs that are its own."""

    def __init__(self, scheduler: str, patience: float | None) -> None:
        self._scheduler = scheduler
        self._patience = patience
        self._queue: Queue | None = None
        self._answer: Answer | None = None
        self._elsewhere: dict[Path, str] = {}
        self._history: Mapping[str, list[JobTold]] | None = None
        self._seen: dict[Path, frozenset[tuple[int, int]]] = {}
        self._records: dict[Path, RecordsState] = {}
        self._states: dict[Path, object] = {}
        self._jobs: set[str] = set()
        self._asked = 0.0
        self._interval = _ASK

    @property
    def answered(self) -> bool:
        """Whether it could tell of all runs the last time."""
        return not self._elsewhere and not (self._answer and self._answer.silence)

    def silence_on(self, run: Run) -> str | None:
        """Why it could not tell of a run the last time."""
        return self._elsewhere.get(run.path) or (self._answer.silence if self._answer else None)

    def told(self, scenes: list[Scene]) -> tuple[list[Scene], dict[Path, Told]]:
        """What is known of its runs, and the scenes as they are by now."""
        doubtful = [scene.queued for scene in scenes if scene.queued and scene.queued.needs_queue()]
        if doubtful and self._is_due(doubtful):
            self._ask(doubtful)
            asked = {run.run.path for run in doubtful}
            further = True
            while further:  # records are read after each answer: what has ended since may be over for it
                scenes = [self._again(scene) if scene.run.path in asked else scene for scene in scenes]
                own = [scene.queued for scene in scenes if scene.queued and scene.run.path in asked]
                further = self._ask_further(own)
        return scenes, self._judge([scene.queued for scene in scenes if scene.queued])

    def _is_due(self, runs: list[QueuedRun]) -> bool:
        if self._answer is None:
            return True
        waited = time.monotonic() - self._asked
        known = [(self._records.get(run.run.path), run.state_of_records) for run in runs]
        if any(before is None or now.jobs - before.jobs for before, now in known):
            return True  # its jobs may be newer than the answer
        changed = any(before != now for before, now in known)
        return waited >= (_ASK if changed else self._interval)

    def _ask(self, runs: list[QueuedRun]) -> None:
        from launcher.schedulers.command import PATIENCE
        from launcher.schedulers.queue import NOT_ASKED
        from launcher.schedulers.registry import queued_of

        if self._queue is None:
            self._queue = queued_of(self._scheduler).queue(patience=self._patience or PATIENCE)
        told = [(run, self._queue.elsewhere(run.clusters)) for run in runs]
        self._elsewhere = {run.run.path: why for run, why in told if why}
        self._jobs = {job for run, why in told if not why for job in run.jobs}
        self._answer = self._queue.ask(self._jobs) if len(self._elsewhere) < len(runs) else NOT_ASKED
        self._history = None
        self._asked = time.monotonic()
        self._seen = {run.run.path: run.seen for run in runs}
        self._records = {run.run.path: run.state_of_records for run in runs}
        states = {run.run.path: [told for _, told in run.told_by(self._answer)] for run in runs}
        self._interval = _ASK if states != self._states else min(_ASK_LESS * self._interval, _SLOWEST_ASK)
        self._states = dict(states)

    def _ask_further(self, runs: list[QueuedRun]) -> bool:
        """Ask about jobs that have been submitted since, as by those that go on; whether there were any."""
        assert self._queue is not None
        assert self._answer is not None
        here = [run for run in runs if run.run.path not in self._elsewhere]
        further = {job for run in here for job in run.jobs} - self._jobs
        if not further or not self._queue.asks_by_id or self._answer.silence:
            return False
        self._jobs |= further
        self._answer = self._answer.joined(self._queue.ask(further))
        return True

    def _again(self, scene: Scene) -> Scene:
        """A run's records as they are after the answer, which may decide whether it was submitted."""
        from launcher.status.settle import decide

        try:
            unclear = scene.queued and scene.queued.unclear and scene.run.path not in self._elsewhere
            if scene.queued and unclear and self._queue and self._answer and not scene.held:
                decide(scene.run, self._queue, self._answer, {send.time for send in scene.queued.unclear})
            return survey(scene.run, held=scene.held)
        except CastoffError:
            return scene  # what cannot be written stays as unclear as it was; what was read still counts

    def _judge(self, runs: list[QueuedRun]) -> dict[Path, Told]:
        from launcher.status.queued import judge

        told = {run.run.path: judge(run, self._known(run)) for run in runs}
        here = [one for path, one in told.items() if path not in self._elsewhere]
        doubtful = {job for one in here for job in one.doubtful}
        if doubtful and self._history is None and self._queue is not None:
            self._history = self._queue.history(doubtful)
            if self._history is not None:
                again = [run for run in runs if doubtful & told[run.run.path].doubtful]
                told |= {run.run.path: judge(run, self._known(run)) for run in again}
        for run in runs:
            _keep(run.run, told[run.run.path].learnt)
        return told

    def _known(self, run: QueuedRun) -> Known:
        from launcher.schedulers.queue import NOT_ASKED, Answer
        from launcher.schedulers.registry import title_of
        from launcher.status.queued import Known

        elsewhere = self._elsewhere.get(run.run.path)
        return Known(
            title_of(self._scheduler),
            Answer({}, frozenset(), elsewhere) if elsewhere else self._answer or NOT_ASKED,
            {} if elsewhere else self._history or {},
            accounted=self._history is not None,
            lag=self._queue.lag if self._queue else 0.0,
            seen=self._seen.get(run.run.path, frozenset()),
            user=self._queue.user_name if self._queue else "",
            now=time.time(),
        )


def _keep(run: Run, learnt: list[tuple[Path, LastWord]]) -> None:
    """Write a scheduler's last words down, so that nobody asks again; where that cannot be, somebody will."""
    with contextlib.suppress(OSError, CastoffError):
        for folder, last in learnt:
            check_trusted(run.path)
            folder.mkdir(mode=0o700, exist_ok=True)
            write(folder / LAST_WORD, last)
