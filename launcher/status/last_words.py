"""A scheduler's last word on an attempt whose own records leave the ending in doubt."""

from __future__ import annotations

import os

from castoff.launcher.runs.records import LastWord
from castoff.launcher.runs.states import known_ending
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.status.attempt import Attempt

_CODES = {"done": 0, "cancelled": 143, "preempted": 143, "walltime": 143, "out-of-memory": 137}
"""The exit code to show for an attempt whose ending only the scheduler knows; 1 for endings not in this
table."""


def cancelled(job: str) -> LastWord:
    """Return the last word on a job that castoff cancelled and the scheduler has forgotten."""
    return LastWord("cancelled", _CODES["cancelled"], job)


def last_word(info: JobInfo, user: str, own_code: int | None = None) -> LastWord:
    """Return a scheduler's last word. `own_code`: the exit code that the script recorded. `user`: the name of
    the user who runs castoff, as the scheduler reports it.
    """
    ending, code = info.ending, own_code or info.exit_code
    if info.ended_itself and ending == "failed":  # the script uses these codes
        ending = {os.EX_TEMPFAIL: "walltime", 143: "cancelled"}.get(code or 1, "failed")
    if not code or code > 255:
        code = _CODES.get(ending, 1)
    why = info.why if info.cancelled_by in (None, user) else f"user {info.cancelled_by} cancelled it"
    return LastWord(ending, code, info.job, info.word, why, info.end, ended_itself=info.ended_itself)


def last_word_on(attempt: Attempt, info: JobInfo, user: str) -> LastWord:
    """Return a scheduler's last word on an attempt. If the script ended by itself, the attempt's own record
    wins, unless a rank died of the signal that cancelled the job before the script got that signal.
    """
    end = attempt.end
    was_cancelled = attempt.was_killed and info.ending == "cancelled"
    if end is None or not info.ended_itself or was_cancelled:
        return last_word(info, user, end.code if end else None)
    ending = known_ending(end.ending)
    return LastWord(ending, end.code, info.job, info.word, end.reason, end.time, ended_itself=True)
