"""Where the time of attempts went, and where their ranks ran: of real runs on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from castoff import JobSpec, Run, Site, submit
from castoff.launcher.history.attempts import (
    QUEUED,
    RUNNING,
    SETUP,
    START_UP,
    HostRanks,
    Phase,
    hosts,
    phases,
    placed,
    waiting,
)
from castoff.launcher.runs.records import Facts

from ..conftest import LocalJobs

REPORT = 'printf \'{"step": 1, "loss": 2, "time": %s}\\n\' "$(date +%s)" >>"$CASTOFF_METRICS_FILE"'


def phases_of(run: Run) -> list[list[Phase]]:
    now = run.status()
    return [phases(run, run.submission(), member, one) for member in now.members for one in member.attempts]


def names(run: Run) -> list[list[str]]:
    return [[one.name for one in found] for found in phases_of(run)]


def test_a_program_that_reports(ended: Callable[..., Run]) -> None:
    run = ended(REPORT)
    assert names(run) == [[QUEUED, SETUP, START_UP, RUNNING]]
    (found,) = phases_of(run)
    marks = [one.start for one in found]
    assert marks == sorted(marks)
    assert [one.end for one in found] == [*marks[1:], run.status().members[0].attempts[0].ended]
    assert all(one.seconds(0) >= 0 for one in found)


def test_a_program_that_does_not(ended: Callable[..., Run]) -> None:
    assert names(ended("true")) == [[QUEUED, SETUP, RUNNING]]


def test_a_job_that_fails_in_setup(ended: Callable[..., Run]) -> None:
    assert names(ended("true", setup=["exit 3"])) == [[QUEUED, SETUP]]


def test_a_requeued_attempt_waits_and_a_restart_does_not(ended: Callable[..., Run]) -> None:
    resumes = '[ "$CASTOFF_ATTEMPT" = 1 ] || echo resume >"$CASTOFF_OUTCOME_FILE"'
    run = ended(resumes, requeue={"max": 1})
    assert names(run) == 2 * [[QUEUED, SETUP, RUNNING]]
    first, second = phases_of(run)
    assert second[0].start == first[-1].end
    restarts = ended('[ "$CASTOFF_ATTEMPT" = 1 ]', restart={"max": 1})
    assert names(restarts) == [[QUEUED, SETUP, RUNNING], [SETUP, RUNNING]]


def test_what_has_not_begun(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(jobs.folder)
    first = submit(JobSpec(command=["sleep", "600"], name="first"), Site.load("local"))
    run = submit(JobSpec(command=["true"], after={"afterok": ["first"]}), Site.load("local"))
    try:
        (member,) = run.status().members
        since = waiting(run.submission(), member)
        submission = run.submission()
        assert since is not None and submission is not None
        assert (since.name, since.start, since.end) == (QUEUED, submission.time, None)
        assert hosts(run, 0, 0) == []
        (other,) = first.status().members
        assert waiting(first.submission(), other) is None or other.state == "pending"
    finally:
        run.cancel()
        first.cancel()


def test_the_hosts_of_an_attempt(ended: Callable[..., Run]) -> None:
    assert hosts(ended("true", ranks_per_node=3), 0, 0) == [HostRanks(socket.gethostname(), range(3))]


def test_ranks_are_where_the_plan_puts_them() -> None:
    uneven = Facts(layout=[(4, 2), (2, 1)])
    assert placed(["a", "b", "c"], uneven) == [
        HostRanks("a", range(4)),
        HostRanks("b", range(4, 8)),
        HostRanks("c", range(8, 10)),
    ]
    assert placed(["a", "b"], uneven) == [HostRanks("a", None), HostRanks("b", None)]
    assert placed(["a"], Facts(layout=[(4, 1)], own_distribution="arbitrary")) == [HostRanks("a", None)]
