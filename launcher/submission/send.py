"""A script handed to its scheduler, exactly once: the one module that runs a submit command.

Before a command runs, its submission stands in submission.json without a job; afterwards with it. A
command that gives no clear answer, or a process that is killed in between, leaves it without one: then
only the queue knows (`launcher.schedulers.queue`), and nothing is sent again before it was asked.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from launcher.errors import CastoffError
from launcher.runs.records import Send, Submission
from launcher.runs.run import Run
from launcher.schedulers.command import command_environment
from launcher.schedulers.local import control as local
from launcher.schedulers.orders import Sending
from launcher.schedulers.registry import queued_of
from launcher.starters.local.processes import GUARDED
from launcher.status.settle import settle

_PATIENCE = 5.0
"""Seconds for a scheduler's answer after somebody has interrupted us."""

_UNCLEAR_PATIENCE = 20.0
"""Seconds in which the queue is asked after an unclear answer."""


class NotSent(CastoffError):
    """A script that its scheduler did not take."""

    def __init__(self, run: Run, command: list[str], code: int, said: str):
        self.said = said
        """The scheduler's own words."""
        how = f"{shlex.join(command)} failed with exit code {code}"
        super().__init__(f"{how}: {said}\nnothing was started; the script is {run.script}")


class Unclear(CastoffError):
    """A script of which nobody knows whether its scheduler took it."""

    def __init__(self, run: Run, command: list[str], said: str):
        self.run = run
        super().__init__(
            f"{shlex.join(command)} gave no clear answer: {said}\n"
            f"nobody knows yet whether {run.id} was submitted; nothing is sent again before the queue was "
            f"asked: `castoff status {run.id}` asks it\nthe script is {run.script}"
        )


class _Answer(NamedTuple):
    code: int
    output: str
    words: str
    interrupted: bool

    @property
    def said(self) -> str:
        """The scheduler's own words, or what there is instead."""
        if words := self.words.strip() or self.output.strip():
            return words
        return f"killed by signal {-self.code}" if self.code < 0 else "without a word"


def send(
    run: Run,
    record: Submission,
    sendings: Sequence[Sending] | None,
    lock: IO[str],
    environ: Mapping[str, str],
) -> None:
    """Run each command once, from the submission's directory, and write its job down.

    Without `sendings` castoff's own scheduler takes the run.

    Raises:
        NotSent: a scheduler refuses one; those before it are cancelled, and the refusal is written down.
        Unclear: one gives no clear answer; those after it have not been sent.
        CastoffError: somebody interrupted this; what was sent until then is written down.
        OSError: it cannot be written down; `record` holds the refusal, if that is what it was.
    """
    try:
        if sendings is None:
            _send_to_local(run, lock, environ)
        else:
            _send_all(run, record, sendings, lock, environ)
    except NotSent as refusal:
        record.sends, record.job, record.error = [], None, refusal.said
        run.write_submission(record)
        raise


def unrecorded(run: Run, record: Submission, error: OSError) -> CastoffError:
    """What to say where the disk, say, has no room for a word of what was sent."""
    words = f"{run.path}: cannot be written: {error.strerror}"
    if record.sends:
        job = record.sends[-1].job
        sent = f"job {job} was submitted" if job else "it may have been submitted"
        words += f"; {sent}, so do not send it again: `castoff status {run.id}` tells what becomes of it"
    return CastoffError(words)


def _send_all(
    run: Run, record: Submission, sendings: Sequence[Sending], lock: IO[str], environ: Mapping[str, str]
) -> None:
    cleaned = command_environment(environ)
    sends = record.sends
    for number, sending in enumerate(sendings, 1):
        command = sending.command(sends[-1].job if sends else None)
        sends.append(_send_of(sending))
        try:
            run.write_submission(record)
        except OSError:
            sends.pop()  # nor is it sent
            raise
        variables = {**cleaned, **sending.environment}
        try:
            answer = _answer(run, command, variables, record.directory, [lock.fileno()])
            sends[-1].job = _job(run, record, command, answer, environ)
        except NotSent as refusal:
            sends.pop()
            run.write_submission(record)
            _withdraw(record.scheduler, sends, environ, refusal)
            raise
        record.job = record.job or sends[-1].job
        run.write_submission(record)
        if answer.interrupted:
            parts = "" if number == len(sendings) else f", {number} of its {len(sendings)} parts"
            raise CastoffError(_interrupted(run, parts))


def _job(
    run: Run, record: Submission, command: list[str], answer: _Answer, environ: Mapping[str, str]
) -> str:
    """The job that a command has become; where its answer does not tell, the queue is asked."""
    scheduler = queued_of(record.scheduler)
    job = scheduler.parse_submit(answer.output) if answer.code == 0 else None
    if job is not None:
        return job
    if scheduler.was_refused(answer.code, answer.words):
        raise NotSent(run, command, answer.code, answer.said)
    record.sends[-1].unclear = answer.said
    run.write_submission(record)
    if not settle(run, patience=_UNCLEAR_PATIENCE, environ=environ):
        raise Unclear(run, command, answer.said)
    settled = run.submission()
    found = settled.sends[-1] if settled else Send()
    if found.job is None:
        raise NotSent(run, command, answer.code, found.error or answer.said)
    return found.job


def _interrupted(run: Run, parts: str = "") -> str:
    return f"interrupted, but {run.id} was submitted{parts}; `castoff cancel {run.id}` ends it"


def _send_of(sending: Sending) -> Send:
    part = sending.part
    if part is None:
        return Send(time=time.time(), link=sending.link)
    gaps = part.members[-1] - part.offset + 1 != len(part.members)
    members = list(part.members) if gaps else None
    return Send(time=time.time(), offset=part.offset, count=len(part.members), members=members)


def _withdraw(scheduler: str, sends: Sequence[Send], environ: Mapping[str, str], why: CastoffError) -> None:
    """Cancel what a scheduler took of a run, the rest of which cannot be sent."""
    jobs = [send.job for send in sends if send.job]
    if refused := queued_of(scheduler).queue(environ).cancel(jobs):
        which = f"jobs {', '.join(refused)}, which it took of the same run, go on"
        words = "; ".join(dict.fromkeys(refused.values()))
        raise CastoffError(f"{why}\nbut {which}: {words}") from why


def _send_to_local(run: Run, lock: IO[str], environ: Mapping[str, str]) -> None:
    """Run the local scheduler's command, once; it inherits the run's lock."""
    marks = (local.MARK, GUARDED)  # of a run that submits this
    environ = {name: value for name, value in environ.items() if name not in marks}
    command = local.submit_command(str(run.path))
    # From the run directory: a folder named launcher where the user works would win over ours.
    answer = _answer(run, command, environ, str(run.path), [], stdin=lock)
    # The scheduler writes its id down before it lets go of our pipes: so it is certain by now.
    if local.parse_submit(answer.output) is None and run.job is None:
        raise NotSent(run, command, answer.code, answer.said.removeprefix("castoff: "))
    if answer.interrupted:
        raise CastoffError(_interrupted(run))


def _answer(
    run: Run,
    command: list[str],
    environ: Mapping[str, str],
    folder: str | None,
    inherited: list[int],
    stdin: IO[str] | int = subprocess.DEVNULL,
) -> _Answer:
    """Run a command to its end."""
    try:
        # In a session of its own: an interrupt at the terminal is not for it.
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ if folder is None else {**environ, "PWD": folder},  # or it would name another
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=inherited,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        gone = folder is not None and not Path(folder).is_dir()
        why = f"{folder} is gone, from which it is submitted" if gone else str(error)
        raise NotSent(run, command, 126, why) from error
    interrupted = False
    try:
        output, words = process.communicate()
    except KeyboardInterrupt:
        interrupted = True
        try:
            output, words = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, words = process.communicate()
    return _Answer(process.returncode, output, words, interrupted)
