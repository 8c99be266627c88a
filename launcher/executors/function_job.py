"""A submitted Python function: submitit's Job, which reads the run directory."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec
from submitit.core import core, utils
from submitit.core.core import R

from castoff.launcher import clock
from castoff.launcher.api.display import of_member, run_html
from castoff.launcher.api.run import Run
from castoff.launcher.errors import CastoffError, shown
from castoff.launcher.executors.environment import FunctionPaths
from castoff.launcher.executors.watcher import RunWatcher, key_of
from castoff.launcher.history.metrics import metrics_of
from castoff.launcher.logs.failures import excerpt_of, failed_rank
from castoff.launcher.runs.directory import open_own, opened
from castoff.launcher.runs.records import Failure, Send, begins, read
from castoff.launcher.runs.run import RunDirectory, wants_resume
from castoff.launcher.runs.states import why
from castoff.launcher.schedulers.base_queue import NOT_QUERIED
from castoff.launcher.schedulers.job_info import member_job_id
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.schedulers.registry import is_own, queued_of
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.submission.cancel import cancel_jobs

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LATE_FILES = 15.0
"""Seconds that a network file system may take to show a file that another host has written."""
_SETTLING = 60.0
"""Seconds that a job may take to end after its function has; after that the result counts anyway."""


class _Planned(msgspec.Struct):
    """The fields of a plan that are needed here, besides its `Facts`."""

    restart: dict[str, Any] | None = None


class JobEndedError(utils.UncompletedJobError):
    """A job has ended without a result. The text says how it ended and what to do."""

    run: Run
    """The run directory."""
    ending: str
    """castoff's word for the ending: walltime, cancelled, again, failed …"""


class FunctionJob(core.Job[R]):
    """A function, or one function of an array, in a run directory.

    `FunctionJob(run_dir, "37_3", range(4))` is again the job of that id, with its four ranks; with PBS
    it is `3.head`, as qsub printed it, or `7[2].head`. It stays the first submission's when the job resumes.
    """

    watcher = RunWatcher()

    def __init__(
        self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,), *, member: int | None = None
    ):
        """`folder`: the run directory. `member`: the number of its function, if known.

        Raises:
            CastoffError: no job of this id was ever submitted from there.
        """
        self.run = Run(Path(folder).absolute())
        """The run directory."""
        if member is None:
            member = next((known for known, job in ids(self.run).items() if job == job_id), None)
        if member is None:
            raise CastoffError(f"{self.run.path}: no job {shown(job_id)} was submitted from there")
        self.member = member
        """The number of its function in the run."""
        self._key = key_of(self.run.path, self.member)
        self._attempt = 0
        """The newest attempt that is known."""
        self._settled = -1
        """The attempt whose end was waited for."""
        self._written = 0
        """The time of the submission record when it was last read."""
        super().__init__(self.run.path, job_id, tasks[:1])
        self._tasks = tuple(tasks)
        if len(tasks) > 1:
            self._sub_jobs = [type(self)(folder, job_id, (rank,), member=self.member) for rank in tasks]

    def _register_in_watcher(self) -> None:
        if self._tasks[0] == 0:
            self.watcher.register_job(self._key)

    @property
    def paths(self) -> FunctionPaths:
        """The paths of its newest attempt."""
        return self._paths_of(self._newest())

    def _paths_of(self, attempt: int) -> FunctionPaths:
        return FunctionPaths(
            self.run.path, self.job_id, member=self.member, attempt=attempt, rank=self.task_id or 0
        )

    def _newest(self) -> int:
        """The newest attempt. Listing the folder of all attempts would take long in a large array.

        A function that was submitted again is not over before its next attempt has begun, too.
        """
        with contextlib.suppress(OSError):
            written = (self.run.path / "submission.json").stat().st_mtime_ns
            if written != self._written:
                self._written = written
                begin = begins(self.run.submission(), self.run.facts())
                self._attempt = max(self._attempt, begin.get(self.member, 0))
                self.watcher.reopen(self._key)
        known = self.watcher.known.get(self._key)
        seen = known.member.attempts[-1].attempt if known and known.member.attempts else 0
        self._attempt = max(self._attempt, seen)
        while (self.run.path / "attempts" / f"{self.member}.{self._attempt + 1}").exists():
            self._attempt += 1
        if self._attempt > seen:
            self.watcher.reopen(self._key)
        return self._attempt

    def metrics(self) -> Any:
        """The metrics that the function has reported, as `Run.metrics` returns them."""
        return self.run.metrics(self.member)

    def _repr_html_(self) -> str:
        """The job as a notebook shows it."""
        now = of_member(self.run.status(), self.member)
        found = [metrics_of(self.run, self.member)]
        return run_html(now, found, at=time.time(), folder=Path.cwd())

    def submission(self) -> utils.DelayedSubmission:
        """The submission, or the one with which its last checkpoint has replaced it."""
        return cast("utils.DelayedSubmission", self._unpickled(self.paths.submitted_pickle))

    def _unpickled(self, path: Path) -> Any:
        """Unpickle a file of the run directory, which must be the user's own because unpickling runs code."""
        name = str(path.relative_to(self.run.path))
        with opened(self.run.path) as directory, open_own(name, directory) as file:
            return pickle.load(file)

    @property
    def state(self) -> str:
        """The state in Slurm's words, as last seen; it no longer changes once the job is done.

        If the result exists and the script is about to end, the end is waited for, once.
        """
        if self.done() and self._settled != (attempt := self._newest()):
            self._settle(attempt)
            self._settled = attempt
        return self.watcher.get_state(self._key)

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """What is known about the job."""
        return self.watcher.get_info(self._key, mode=mode)

    def done(self, force_check: bool = False) -> bool:
        """Whether the job is over. Its records are read each time, its scheduler is asked at intervals."""
        if self._sub_jobs:
            return all(job.done(force_check) for job in self._sub_jobs)
        paths = self.paths
        _look_anew(paths.attempt_folder)
        has_result = paths.result_pickle.exists() and not _wants_resume(paths)
        if has_result and not self._restarts:
            return True
        ended = has_result or (paths.attempt_folder / "ending.json").exists()
        mode = "force" if force_check else "soon" if ended else "standard"
        return self.watcher.is_done(self._key, mode=mode)

    @cached_property
    def _restarts(self) -> bool:
        """Whether the same job may start another attempt after one that failed."""
        planned = read(self.run.path / "plan.json", _Planned)
        return planned is not None and planned.restart is not None

    def wait(self) -> None:
        """Wait until it is over."""
        pause = _FIRST_PAUSE
        while not self.done():
            clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)

    def results(self) -> list[R]:
        """What the function returned on each rank; waits for it.

        Raises:
            FailedJobError: it raised; of several ranks, the one that failed first.
            JobEndedError: it ended otherwise.
        """
        try:
            return super().results()
        except utils.UncompletedJobError as error:
            raise self._first_error() or error from None

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """Why there is no result; of several ranks, the failure of the one that failed first."""
        error = super().exception()
        return error and (self._first_error() or error)

    def _first_error(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """The error of the rank that is recorded as the first one to fail."""
        record = read(self.paths.attempt_folder / "failure.json", Failure)
        if not self._sub_jobs or record is None or record.rank is None or record.rank >= self.num_tasks:
            return None
        return self._sub_jobs[record.rank].exception()

    def _get_outcome_and_result(self) -> tuple[str, Any]:
        while True:
            paths = self.paths
            if not self._has_result(paths) or _wants_resume(paths):
                raise self._ended(paths)
            outcome, result = self._unpickled(paths.result_pickle)
            if outcome != "success":  # after a preemption or a node failure it resumes
                self._settle(paths.attempt)
            if outcome == "success" or self._newest() == paths.attempt:
                return outcome, result
            self.wait()

    def _ended(self, paths: FunctionPaths) -> JobEndedError:
        """The error for an attempt that ended without a result: how it ended, what to do, and the end of its
        log."""
        info, run = self.watcher.get_info(self._key, "soon"), self.run
        members = run.facts().array_count
        ending = info.get("Ending", "unknown")
        who = f"function {self.member} of {members}, rank" if members else "rank"
        known = self.watcher.known.get(self._key)
        never_begins = known is not None and known.member.dependency_never_satisfied
        came = "will never begin" if never_begins else f"ended without a result: {ending}"
        lines = [f"job {self.job_id} (run {run.id}, {who} {paths.task_id}) {came}"]
        last = known.member.attempts[-1] if known and known.member.attempts else None
        known_reasons = why(last.failure, last.reason) if last else []
        # A run's reason repeats its attempt's failure.
        lines += known_reasons or ([info["Reason"]] if "Reason" in info else [])
        again = f"castoff resubmit {run.id}" + (f" --member {self.member}" if members else "")
        if _wants_resume(paths):
            lines.append(f"it stopped early and is not restarted automatically: `{again}` resumes it")
        elif never_begins:
            lines.append(f"`castoff cancel {run.id}` takes it out of the queue")
        elif ending == "done":
            lines.append(
                "its ranks exited with 0, but the function did not return: something in it calls exit()"
            )
        elif ending != "unknown":
            lines.append(f"`{again}` restarts it")
        script = run.script_log(self.member)
        lines.append(f"logs: {paths.stdout.parent}, and {script} of the script")
        failed = failed_rank(run, self.member, last) if last else None
        found = failed and (failed.stack or failed.log)
        log = found or (paths.stdout if paths.stdout.exists() else script)
        with contextlib.suppress(OSError):
            if words := failed.excerpt() if failed and found else excerpt_of(log):
                lines += [f"from {log}:", *("  " + line.decode(errors="replace") for line in words)]
        error = JobEndedError("\n".join(lines))
        error.run, error.ending = run, ending
        return error

    def _has_result(self, paths: FunctionPaths) -> bool:
        give_up = clock.now() + _LATE_FILES
        while not paths.result_pickle.exists():
            if self.watcher.get_state(self._key, "soon") != "COMPLETED" or clock.now() > give_up:
                return False
            clock.sleep(0.2)
            _look_anew(paths.attempt_folder)
        return True

    def _settle(self, attempt: int) -> None:
        """Wait, for a limited time, until an attempt that has a result is over or another attempt follows
        it."""
        give_up = clock.now() + _SETTLING
        while self._newest() == attempt and clock.now() < give_up:
            known = self.watcher.known.get(self._key)
            if self.watcher.is_done(self._key, "force" if known and is_own(known.run.scheduler) else "soon"):
                break
            clock.sleep(_FIRST_PAUSE)

    def _get_logs_string(self, name: str) -> str | None:
        """The log of this rank, of all its attempts, oldest first; it holds both streams."""
        texts = []
        for attempt in range(self._newest() + 1):
            with contextlib.suppress(FileNotFoundError):
                texts.append(self._paths_of(attempt).stdout.read_text(encoding="utf-8", errors="replace"))
        return "".join(texts) if texts else None

    def cancel(self, check: bool = True) -> None:
        """End the function with all its ranks; the others of its array continue.

        Raises:
            CastoffError: `check`, and it cannot be ended from here.
        """
        with contextlib.nullcontext() if check else contextlib.suppress(CastoffError):
            _cancel(self.run, self.member)

    def __del__(self) -> None:
        # getattr: one that could not be made, or is a shell that a batch will fill
        if getattr(self, "_cancel_at_deletion", False) and not self.watcher.is_done(self._key, "cache"):
            self.cancel(check=False)


def ids(run: RunDirectory) -> dict[int, str]:
    """The scheduler's ids of a run's members at its last submission."""
    record = run.submission()
    found: dict[int, str] = {}
    if record is not None:
        for send in record.sends or [Send(job=record.job, count=run.facts().array_count)]:
            if send.job is not None:  # else nobody knows it
                for member, index in send.starts().items():  # of a chain the first link
                    found.setdefault(member, member_job_id(send.job, index))
    return found


def _cancel(run: RunDirectory, member: int) -> None:
    """End one member of a run."""
    records = RunRecords(run)
    if is_own(records.plan.scheduler):
        return cancel(run, member if records.plan.array_count else None)
    queue = queued_of(records.plan.scheduler).queue()
    elsewhere = queue.elsewhere(records.clusters)
    answer = NOT_QUERIED if elsewhere else queue.ask(records.jobs)
    if silence := elsewhere or answer.silence_on(sorted(records.jobs)):
        raise CastoffError(
            f"{run.id}: {queue.title} could not be reached; the job is still active: {silence}"
        )
    own = [
        key
        for key, one in answer.jobs.items()
        # Another cluster's job may have the same id, but not the same script.
        if one.is_active and records.key(member, one.job) == key and one.runs(str(run.script))
    ]
    for words in cancel_jobs(queue, {run: [member_job_id(*one) for one in own]}).values():
        raise CastoffError(words)
    return None


def _wants_resume(paths: FunctionPaths) -> bool:
    """Whether an attempt asks to be resumed later, whatever its ranks returned."""
    return wants_resume(paths.attempt_folder / "outcome")


def _look_anew(folder: Path) -> None:
    """Make a network file system ask its server for a folder's content, as submitit does."""
    with contextlib.suppress(OSError):
        folder.chmod(folder.stat().st_mode)
