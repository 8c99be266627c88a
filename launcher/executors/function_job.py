"""A submitted Python function: a submitit Job that reads the run directory."""

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
from castoff.launcher.history.reading import reduced_metrics_of
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
from castoff.launcher.submission.cancel_members import ask_to_end

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LATE_FILES = 15.0
"""Seconds that a network file system may take to show a file written on another host."""
_SETTLING = 60.0
"""Seconds to wait for a job to end after its function has returned; then the result counts anyway."""


class _Planned(msgspec.Struct):
    """The fields of a plan that this module needs and `Facts` lacks."""

    restart: dict[str, Any] | None = None


class JobEndedError(utils.UncompletedJobError):
    """A job ended without a result. The text explains how it ended and what to do."""

    run: Run
    """The run directory."""
    ending: str
    """How the job ended, in castoff's terms: walltime, cancelled, resume, failed …"""


class FunctionJob(core.Job[R]):
    """A submitted function, or one function of an array, with its run directory.

    `FunctionJob(run_dir, "37_3", range(4))` restores the job with that id and four ranks; PBS's ids are like
    `3.head` or `7[2].head`. The id stays that of the first submission when the job is resumed.
    """

    watcher = RunWatcher()

    def __init__(
        self, folder: Path | str, job_id: str, tasks: Sequence[int] = (0,), *, member: int | None = None
    ):
        """`folder`: the run directory. `member`: the function's number in the run, if known.

        Raises:
            CastoffError: no job with this id was submitted from the run directory.
        """
        self.run = Run(Path(folder).absolute())
        """The run directory."""
        if member is None:
            member = next((number for number, job in ids(self.run).items() if job == job_id), None)
        if member is None:
            raise CastoffError(f"{self.run.path}: no job {shown(job_id)} was submitted from this directory")
        self.member = member
        """The function's number in the run."""
        self._key = key_of(self.run.path, self.member)
        self._attempt = 0
        """The newest attempt seen so far."""
        self._settled = -1
        """The last attempt for whose end `state` has waited."""
        self._written = 0
        """The mtime (ns) of the submission record when it was last read."""
        super().__init__(self.run.path, job_id, tasks[:1])
        self._tasks = tuple(tasks)
        if len(tasks) > 1:
            self._sub_jobs = [type(self)(folder, job_id, (rank,), member=self.member) for rank in tasks]

    def _register_in_watcher(self) -> None:
        if self._tasks[0] == 0:
            self.watcher.register_job(self._key)

    @property
    def paths(self) -> FunctionPaths:
        """The paths of the newest attempt."""
        return self._paths_of(self._newest())

    def _paths_of(self, attempt: int) -> FunctionPaths:
        return FunctionPaths(
            self.run.path, self.job_id, member=self.member, attempt=attempt, rank=self.task_id or 0
        )

    def _newest(self) -> int:
        """The number of the newest attempt.

        A resubmitted function counts as running even before its next attempt has begun.
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
        # Not by listing the folder of all attempts, which takes long for a large array.
        while (self.run.path / "attempts" / f"{self.member}.{self._attempt + 1}").exists():
            self._attempt += 1
        if self._attempt > seen:
            self.watcher.reopen(self._key)
        return self._attempt

    def metrics(self) -> Any:
        """The metrics that the function has reported, in the form of `Run.metrics`."""
        return self.run.metrics(self.member)

    def _repr_html_(self) -> str:
        """The job's HTML in a notebook."""
        status = of_member(self.run.status(), self.member)
        metrics = [reduced_metrics_of(self.run, self.member)]
        return run_html(status, metrics, at=time.time(), folder=Path.cwd())

    def submission(self) -> utils.DelayedSubmission:
        """The submitted function with its arguments; after a checkpoint, the function that resumes it."""
        return cast("utils.DelayedSubmission", self._unpickled(self.paths.submitted_pickle))

    def _unpickled(self, path: Path) -> Any:
        """Unpickle a file of the run directory, which must be the user's own because unpickling runs code."""
        name = str(path.relative_to(self.run.path))
        with opened(self.run.path) as directory, open_own(name, directory) as file:
            return pickle.load(file)

    @property
    def state(self) -> str:
        """The last known state in Slurm's terms; final once the job is done.

        If the result exists but the script is still running, `state` waits once for its end.
        """
        if self.done() and self._settled != (attempt := self._newest()):
            self._settle(attempt)
            self._settled = attempt
        return self.watcher.get_state(self._key)

    def get_info(self, mode: str = "force") -> dict[str, str]:
        """The known facts about the job: its id, state, hosts, exit code, ending and more."""
        return self.watcher.get_info(self._key, mode=mode)

    def done(self, force_check: bool = False) -> bool:
        """Whether the job is over. Reads the records at each call, and queries the scheduler at intervals."""
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
        """Whether the job restarts its ranks after a failure."""
        planned = read(self.run.path / "plan.json", _Planned)
        return planned is not None and planned.restart is not None

    def wait(self) -> None:
        """Wait until the job is over."""
        pause = _FIRST_PAUSE
        while not self.done():
            clock.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 1.5)

    def results(self) -> list[R]:
        """Wait for the function, and return its result on each rank.

        Raises:
            FailedJobError: the function raised an error; with several ranks, that of the first to fail.
            JobEndedError: the job ended without a result.
        """
        try:
            return super().results()
        except utils.UncompletedJobError as error:
            raise self._first_error() or error from None

    def exception(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """The error to raise instead of a result: with several ranks, the error of the rank that failed
        first.
        """
        error = super().exception()
        return error and (self._first_error() or error)

    def _first_error(self) -> utils.UncompletedJobError | utils.FailedJobError | None:
        """The error of the rank that is recorded as the first to fail."""
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
            if outcome != "success":  # after a preemption or a node failure, there is another attempt
                self._settle(paths.attempt)
            if outcome == "success" or self._newest() == paths.attempt:
                return outcome, result
            self.wait()

    def _ended(self, paths: FunctionPaths) -> JobEndedError:
        """The error for an attempt without a result: how the attempt ended, what to do, and the last lines of
        its log.
        """
        info, run = self.watcher.get_info(self._key, "soon"), self.run
        members = run.facts().array_count
        ending = info.get("Ending", "unknown")
        who = f"function {self.member} of {members}, rank" if members else "rank"
        known = self.watcher.known.get(self._key)
        never_begins = known is not None and known.member.dependency_never_satisfied
        how = "can never begin" if never_begins else f"ended without a result: {ending}"
        lines = [f"job {self.job_id} (run {run.id}, {who} {paths.task_id}) {how}"]
        last = known.member.attempts[-1] if known and known.member.attempts else None
        reasons = why(last.failure, last.reason) if last else []
        # Only one of the two: the run's reason repeats its attempt's failure.
        lines += reasons or ([info["Reason"]] if "Reason" in info else [])
        again = f"castoff resubmit {run.id}" + (f" --member {self.member}" if members else "")
        if _wants_resume(paths):
            lines.append(f"it stopped early and is not restarted automatically: `{again}` resumes it")
        elif never_begins:
            lines.append(f"`castoff cancel {run.id}` takes it out of the queue")
        elif ending == "done":
            lines.append("its ranks exited with 0, but the function did not return: perhaps it calls exit()")
        elif ending != "unknown":
            lines.append(f"`{again}` restarts it")
        script = run.script_log(self.member)
        lines.append(f"logs: {paths.stdout.parent}; the script's output: {script}")
        failed = failed_rank(run, self.member, last) if last else None
        failed_log = failed and (failed.stack or failed.log)
        log = failed_log or (paths.stdout if paths.stdout.exists() else script)
        with contextlib.suppress(OSError):
            if words := failed.excerpt() if failed and failed_log else excerpt_of(log):
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
        """Wait up to a minute until an attempt that has a result is over, or the next attempt has started."""
        give_up = clock.now() + _SETTLING
        while self._newest() == attempt and clock.now() < give_up:
            known = self.watcher.known.get(self._key)
            if self.watcher.is_done(self._key, "force" if known and is_own(known.run.scheduler) else "soon"):
                break
            clock.sleep(_FIRST_PAUSE)

    def _get_logs_string(self, name: str) -> str | None:
        """The text of this rank's logs, which contain both streams, from the first attempt to the newest."""
        texts = []
        for attempt in range(self._newest() + 1):
            with contextlib.suppress(FileNotFoundError):
                texts.append(self._paths_of(attempt).stdout.read_text(encoding="utf-8", errors="replace"))
        return "".join(texts) if texts else None

    def cancel(self, check: bool = True) -> None:
        """End the function with all its ranks; other functions of its array continue.

        Raises:
            CastoffError: `check` is true, and the function cannot be ended.
        """
        with contextlib.nullcontext() if check else contextlib.suppress(CastoffError):
            _cancel(self.run, self.member)

    def __del__(self) -> None:
        # getattr: __init__ may have failed, or a batch may not have filled this object yet
        if getattr(self, "_cancel_at_deletion", False) and not self.watcher.is_done(self._key, "cache"):
            self.cancel(check=False)


def ids(run: RunDirectory) -> dict[int, str]:
    """The scheduler's job ids of a run's members, from its last submission."""
    record = run.submission()
    job_ids: dict[int, str] = {}
    if record is not None:
        for send in record.sends or [Send(job=record.job, count=run.facts().array_count)]:
            if send.job is not None:  # None: the id is unknown
                for member, index in send.starts().items():
                    job_ids.setdefault(member, member_job_id(send.job, index))  # in a chain, the first job's
    return job_ids


def _cancel(run: RunDirectory, member: int) -> None:
    """End one member of a run."""
    records = RunRecords(run)
    if is_own(records.plan.scheduler):
        return cancel(run, member if records.plan.array_count else None)
    if records.plan.sharing:
        return ask_to_end(run, member, records)
    queue = queued_of(records.plan.scheduler).queue()
    elsewhere = queue.elsewhere(records.clusters)
    answer = NOT_QUERIED if elsewhere else queue.ask(records.jobs)
    if problem := elsewhere or answer.silence_on(sorted(records.jobs)):
        raise CastoffError(
            f"{run.id}: {queue.title} could not be reached; the job is still active: {problem}"
        )
    keys = [
        key
        for key, job in answer.jobs.items()
        # Another cluster's job may have the same id, but not the same script.
        if job.is_active and records.key(member, job.job) == key and job.runs(str(run.script))
    ]
    for problem in cancel_jobs(queue, {run: [member_job_id(*key) for key in keys]}).values():
        raise CastoffError(problem)
    return None


def _wants_resume(paths: FunctionPaths) -> bool:
    """Whether an attempt asked to be resumed later, whatever its ranks returned."""
    return wants_resume(paths.attempt_folder / "outcome")


def _look_anew(folder: Path) -> None:
    """Make a network file system read a folder's content from its server again, as submitit does."""
    with contextlib.suppress(OSError):
        folder.chmod(folder.stat().st_mode)
