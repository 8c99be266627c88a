"""Facts about a member, from records and answers of every kind."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.schedulers.base_queue import Answer, Key
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.slurm.queue import SlurmQueue
from castoff.launcher.status.evidence import Sources
from castoff.launcher.status.scheduler_view import SchedulerView
from castoff.launcher.status.survey import RunRecords

from ..fake_slurm import OnSlurm
from .test_table import possible

ENDINGS = [("done", 0), ("failed", 3), ("failed", 137), ("cancelled", 143), ("walltime", 75), ("resume", 0)]
INFO = JobInfo("7", None, "W", "ended", submitted=900.0, start=1000.0, end=1900.0)
REPORTS = [
    INFO._replace(stage="pending", pending_reason="it waits"),
    INFO._replace(stage="running"),
    INFO._replace(stage="unknown"),
    INFO._replace(ending="done", ended_itself=True),
    INFO._replace(ending="done", ended_itself=True, may_have_been_killed=True),
    INFO._replace(ending="failed", ended_itself=True, exit_code=1),
    INFO._replace(ending="cancelled", was_cancelled=True),
    INFO._replace(ending="node-failure"),
]
STARTS = [*REPORTS, INFO._replace(stage="pending", ending="preempted", was_requeued=True)]
LAST = {"ending": "preempted", "code": 143, "job": "7"}

# How an attempt ended by its script; whether its scheduler's last word says that it was queued again, or the
# end; the next job.
attempts = st.tuples(
    st.none() | st.sampled_from(ENDINGS), st.none() | st.booleans(), st.none() | st.sampled_from("89")
)
answers = st.none() | st.sampled_from(REPORTS)


def recorded(folder: Path, found: list[Any], cancelled: bool) -> OnSlurm:
    made = OnSlurm(folder)
    for number, (ending, requeued, following) in enumerate(found):
        name = f"0.{number}"
        made.attempt(name, *(ending or ()))
        if requeued is not None:
            made.write(f"attempts/{name}/scheduler.json", {**LAST, "requeued": requeued})
        if following is not None:
            made.write(f"attempts/{name}/next.json", {"job": following})
    if cancelled:
        made.write("cancelled.json", {"jobs": {"7": 1005.0}})
    return made


@settings(derandomize=True, max_examples=40)
@given(
    st.lists(attempts, max_size=2),
    st.booleans(),
    st.none() | st.fixed_dictionaries({"7": answers, "8": answers}),
    st.none() | st.lists(st.sampled_from(STARTS), max_size=2),
    st.sets(st.tuples(st.just(0), st.integers(0, 1))),
)
def test_whatever_is_known_of_a_member_makes_sense(
    found: list[Any],
    cancelled: bool,
    queue: dict[str, JobInfo | None] | None,
    history: list[JobInfo] | None,
    seen: set[tuple[int, int]],
) -> None:
    with TemporaryDirectory() as folder:
        made = recorded(Path(folder), found, cancelled)
        script = str(made.run.script)
        jobs: dict[Key, JobInfo] = {
            (job, None): info._replace(job=job, script=script) for job, info in (queue or {}).items() if info
        }
        answer = Answer(jobs, "no answer" if queue is None else None)
        starts = None if history is None else {"7": [start._replace(script=script) for start in history]}
        records = RunRecords(made.run)
        facts = Sources(1950.0, 15.0, records, answer, starts, seen).evidence(0).facts
        assert possible(facts), facts
        view = SchedulerView(records, SlurmQueue(), answer, starts, seen)
        (member,) = view.members
        assert (member.ending is None) is (member.state in ("pending", "running"))
        assert [one.attempt for one in member.attempts] == [*range(len(member.attempts))]
        if queue is None and not view.unsettled:
            assert records.attempts[0][-1].is_certain and member.state == "ended"
        if member.state == "pending":
            assert member.reason and all(one.state != "running" for one in member.attempts)
