"""Submits a script exactly once: the only module that runs a submit command.

Before a command runs, submission.json records the submission without a job; afterwards, with the job. If the
command gives no clear answer, or castoff is killed in between, the job stays unrecorded. Then only the queue
knows the job (`castoff.launcher.schedulers.base_queue`), and castoff queries the queue before it submits
anything again.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from castoff.launcher.errors import CastoffError, report
from castoff.launcher.launchers.local.processes import GUARDED
from castoff.launcher.runs.records import Send, Submission
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.secrets import SECRETS
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import Answering, command_environment
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.schedulers.submit_request import SubmitCommand
from castoff.launcher.status.settle import settle

_PATIENCE = 5.0
"""Seconds to wait for the scheduler's answer after the user has pressed Ctrl-C."""

_SLOW = 10.0
"""Seconds without an answer after which castoff reports that it is waiting."""

_LONGEST_ANSWER = 1 << 20
"""The number of bytes that are kept of a submit command's output, which begins with the job's id."""

_UNCLEAR_PATIENCE = 20.0
"""Seconds during which the queue is queried after an unclear answer."""


class NotSent(CastoffError):
    """The scheduler refused a script."""

    def __init__(
        self,
        run: RunDirectory,
        command: list[str],
        code: int,
        message: str,
        unreached: str = "",
        remedy: str = "",
    ):
        """`unreached`: the scheduler's title, if neither the command nor a query could reach the
        scheduler.
        """
        self.message = message
        """The scheduler's own message."""
        how = f"{shlex.join(command)} failed with exit code {code}"
        certain = "nothing was started"
        if unreached:
            certain = f"it did not reach {unreached}; `castoff resubmit {run.id}` submits it again"
        hint = f"{remedy}\n" if remedy else ""
        super().__init__(f"{how}: {message}\n{hint}{certain}; the script is {run.script}")


class Interrupted(CastoffError):
    """The user pressed Ctrl-C, but the run was submitted."""

    exit_code = 130

    def __init__(self, run: RunDirectory, parts: str = ""):
        follow, end = f"castoff logs -f {run.id}", f"castoff cancel {run.id}"
        super().__init__(
            f"interrupted, but {run.id} was submitted{parts}: `{follow}` follows it, `{end}` ends it"
        )


class Unclear(CastoffError):
    """It is not known whether the scheduler accepted a script."""

    def __init__(self, run: RunDirectory, command: list[str], message: str):
        self.run = run
        super().__init__(
            f"{shlex.join(command)} gave no clear answer: {message}\n"
            f"it is not known yet whether {run.id} was submitted; castoff queries the queue before it "
            f"submits anything again: `castoff status {run.id}`\nthe script is {run.script}"
        )


class _Answer(NamedTuple):
    code: int
    output: str
    words: str
    interrupted: bool
    given_up: float | None = None
    """The seconds after which the command was killed because it had not ended; None: the command ended in
    time.
    """

    @property
    def message(self) -> str:
        """The scheduler's own message, or a substitute if it printed none."""
        words = self.words.strip() or self.output.strip()
        if self.given_up is not None:
            return f"no answer within {self.given_up:g} s{f': {words}' if words else ''}"
        if words:
            return words
        return f"killed by signal {-self.code}" if self.code < 0 else "without a message"


def send(
    run: RunDirectory,
    record: Submission,
    scheduler: QueuedScheduler | None,
    submit_commands: Sequence[SubmitCommand],
    lock: IO[str],
    environ: Mapping[str, str],
    limit: float,
) -> None:
    """Run each submit command once, from the submission's directory, and record the job that it creates.

    `limit`: seconds to wait for a command's answer. Without a `scheduler`, castoff's own scheduler takes the
    run, and `submit_commands` is empty.

    Raises:
        NotSent: the scheduler refuses a command; the jobs before it are cancelled, the refusal is recorded.
        Unclear: a command gives no clear answer; the commands after it have not run.
        CastoffError: the user interrupted this; what was submitted until then is recorded.
        OSError: a record cannot be written; `record` contains the refusal, if there was one.
    """
    try:
        if scheduler is None:
            _send_to_local(run, lock, environ)
        else:
            _send_all(run, record, scheduler, submit_commands, lock, environ, limit)
    except NotSent as refusal:
        with contextlib.suppress(OSError):
            (run.path / SECRETS).unlink(missing_ok=True)  # secrets that no script will read
        record.sends, record.job, record.error = [], None, refusal.message
        run.write_submission(record)
        raise


def unrecorded(run: RunDirectory, record: Submission, error: OSError) -> CastoffError:
    """Return the error for a submission that could not be recorded, for example because the disk is full."""
    words = f"{run.path}: cannot be written: {error.strerror}"
    if record.sends:
        job = record.sends[-1].job
        sent = f"job {job} was submitted" if job else "it may have been submitted"
        words += f"; {sent}, so do not submit it again: `castoff status {run.id}` shows its state"
    return CastoffError(words)


def _send_all(
    run: RunDirectory,
    record: Submission,
    scheduler: QueuedScheduler,
    submit_commands: Sequence[SubmitCommand],
    lock: IO[str],
    environ: Mapping[str, str],
    limit: float,
) -> None:
    cleaned = command_environment(environ)
    sends = record.sends
    for number, part_of_run in enumerate(submit_commands, 1):
        command = part_of_run.argv(sends[-1].job if sends else None)
        sends.append(send_of(part_of_run))
        try:
            run.write_submission(record)
        except OSError:
            sends.pop()  # the command will not run
            raise
        variables = {**cleaned, **part_of_run.environment}
        try:
            answer = _answer(run, command, variables, record.directory, [lock.fileno()], limit=limit)
            sends[-1].job = _job(run, record, scheduler, command, answer, environ)
        except NotSent as refusal:
            sends.pop()
            run.write_submission(record)
            _withdraw(scheduler, sends, environ, refusal)
            raise
        record.job = record.job or sends[-1].job
        run.write_submission(record)
        if answer.interrupted:
            parts = (
                "" if number == len(submit_commands) else f", {number} of its {len(submit_commands)} parts"
            )
            raise Interrupted(run, parts)


def _job(
    run: RunDirectory,
    record: Submission,
    scheduler: QueuedScheduler,
    command: list[str],
    answer: _Answer,
    environ: Mapping[str, str],
) -> str:
    """Return the job that a submit command created; if the command's answer does not say, query the queue."""
    # Some wrappers print only to stderr.
    streams = [answer.output, *([answer.words] if answer.code == 0 else [])]
    job = scheduler.parse_submit(*streams)
    if job is not None and (answer.code == 0 or not scheduler.plain_ids):
        return job
    refused = scheduler.was_refused(answer.code, answer.words)
    unreached = refused and scheduler.unreached.search(answer.words) is not None
    record.sends[-1].unclear = answer.message
    run.write_submission(record)
    patience = 0.0 if unreached else _UNCLEAR_PATIENCE
    if not settle(run, scheduler.queue(environ), patience=patience, refused=refused):
        if unreached:
            raise NotSent(run, command, answer.code, answer.message, scheduler.title)
        raise Unclear(run, command, answer.message)
    settled = run.submission()
    settled_send = settled.sends[-1] if settled else Send()
    if settled_send.job is None:
        message = settled_send.error or answer.message
        remedy = scheduler.remedy(message)
        if record.excluded and not remedy:
            remedy = f"castoff resubmit --all-hosts does not exclude {', '.join(record.excluded)}"
        raise NotSent(run, command, answer.code, message, remedy=remedy)
    return settled_send.job


def send_of(part_of_run: SubmitCommand) -> Send:
    """Make the record of a command that is about to run."""
    part = part_of_run.part
    if part is None:
        return Send(time=time.time(), link=part_of_run.link)
    if part.one_job:
        return Send(time=time.time(), members=list(part.members), one_job=True)
    gaps = part.tasks is not None or part.members[-1] - part.offset + 1 != len(part.members)
    members = list(part.members) if gaps else None
    tasks = None if part.tasks is None else list(part.tasks)
    return Send(time=time.time(), offset=part.offset, count=len(part.members), members=members, tasks=tasks)


def _withdraw(
    scheduler: QueuedScheduler, sends: Sequence[Send], environ: Mapping[str, str], why: CastoffError
) -> None:
    """Cancel the jobs of a run that were already accepted, because its other jobs cannot be submitted."""
    jobs = [send.job for send in sends if send.job]
    if refused := scheduler.queue(environ).cancel(jobs):
        which = f"jobs {', '.join(refused)}, which it accepted for the same run, are still active"
        words = "; ".join(dict.fromkeys(refused.values()))
        raise CastoffError(f"{why}\nbut {which}: {words}") from why


def _send_to_local(run: RunDirectory, lock: IO[str], environ: Mapping[str, str]) -> None:
    """Run the local scheduler's command once; it inherits the run's lock."""
    marks = (local.MARK, GUARDED)  # the variables of an enclosing run
    environ = {name: value for name, value in environ.items() if name not in marks}
    command = local.submit_command(str(run.path))
    # In the run directory: a folder `castoff` in the working directory would be imported instead of ours.
    answer = _answer(run, command, environ, str(run.path), [], stdin=lock)
    # The local scheduler records its id before it closes our pipes, so that the record is complete by now.
    if local.parse_submit(answer.output) is None and run.job is None:
        raise NotSent(run, command, answer.code, answer.message.removeprefix("castoff: "))
    if answer.interrupted:
        raise Interrupted(run)


def _answer(
    run: RunDirectory,
    command: list[str],
    environ: Mapping[str, str],
    folder: str | None,
    inherited: list[int],
    stdin: IO[str] | int = subprocess.DEVNULL,
    limit: float | None = None,
) -> _Answer:
    """Run a command until it ends, or for at most `limit` seconds, and return its output."""
    try:
        # In a new session, which Ctrl-C at the terminal does not reach.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ if folder is None else {**environ, "PWD": folder},  # PWD would name another folder
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=inherited,
        )
    except OSError as error:
        gone = folder is not None and not Path(folder).is_dir()
        reason = f"the folder of the submission, {folder}, is gone" if gone else str(error)
        raise NotSent(run, command, 126, reason) from error
    interrupted, given_up = False, None
    answering = Answering(process, _LONGEST_ANSWER)
    try:
        _await(answering, command[0], limit)
    except KeyboardInterrupt:
        interrupted = True
        _cut_short(process, answering, _PATIENCE)
    except subprocess.TimeoutExpired:
        given_up = limit
        _cut_short(process, answering, 0.0)
    output, words = (text.decode(errors="replace") for text in (answering.output, answering.errors))
    return _Answer(process.returncode, output, words, interrupted, given_up)


def _await(answering: Answering, name: str, limit: float | None) -> None:
    """Wait until a command has ended, and report that castoff is waiting if it takes long.

    Raises:
        subprocess.TimeoutExpired: the command takes more than `limit` seconds.
    """
    first = _SLOW if limit is None else min(_SLOW, limit)
    try:
        answering.wait(first)
        return
    except subprocess.TimeoutExpired:
        if limit == first:
            raise
    ends = f"; castoff gives up after {limit:g} s" if limit else ""
    report(f"still waiting for {name}, which has not answered for {first:g} s{ends}")
    answering.wait(None if limit is None else limit - first)


def _cut_short(process: subprocess.Popen[bytes], answering: Answering, patience: float) -> None:
    """Give a command `patience` seconds to end, then kill it with all its children."""
    try:
        answering.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        answering.wait(None)
