"""What a queue's answers say together."""

from __future__ import annotations

import subprocess

from castoff.launcher.schedulers.base_queue import Answer
from castoff.launcher.schedulers.command import failure_of
from castoff.launcher.schedulers.job_info import JobInfo


def test_what_one_answer_left_out_stays_open_when_another_follows() -> None:
    """Else a job of which nothing is known would count as one that the queue no longer has."""
    first = Answer(
        {("7", None): JobInfo("7", None, "R")}, unanswered={"8": "qstat's answer leaves out job 8"}
    )
    second = Answer(
        {("9", None): JobInfo("9", None, "R")}, unanswered={"10": "qstat's answer leaves out job 10"}
    )
    both = first.joined(second)
    assert {job for job, _ in both.jobs} == {"7", "9"}
    assert both.silence_on(["7", "8"]) == "qstat's answer leaves out job 8"
    assert both.silence_on(["10"]) == "qstat's answer leaves out job 10"
    assert both.silence_on(["7", "9", None]) is None


def test_a_scheduler_that_has_fallen_silent_has_the_last_word() -> None:
    first = Answer({("7", None): JobInfo("7", None, "R")})
    assert first.joined(Answer({}, "no answer")).silence_on(["7"]) == "no answer"


def test_what_a_command_repeats_is_reported_once() -> None:
    """qstat says of each job that its server is away."""
    away = "Connection refused\nqstat: cannot connect to server head (errno=15010)\n"
    failed = failure_of(subprocess.CompletedProcess(["/opt/pbs/bin/qstat", "-f"], 255, "", away * 7))
    once = "Connection refused qstat: cannot connect to server head (errno=15010)"
    assert failed == f"qstat failed with exit code 255: {once}"
