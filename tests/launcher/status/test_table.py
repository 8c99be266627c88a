"""The table of states, for all facts that there can be about a member."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from castoff.launcher.status.table import AGAIN, GROUPS, TABLE, End, Facts, Job, Next, Records, Row, decide

NOT_SENT = Records.LEFT_OUT | Records.REFUSED | Records.SENDING | Records.UNSENT | Records.UNCLEAR
DOUBTED = Records.DOUBTFUL | Records.KILLED
NAMELESS = Job.UNNAMED | Job.NAMED_LATER
MAY_RUN = Job.SILENT | Job.PENDING | Job.RUNNING | Job.STRANGE


def possible(facts: Facts) -> bool:
    """Whether there can be such a member."""
    records, job, end, following, cancelled = facts
    if records in NOT_SENT:
        return facts == Facts(records)
    if job is Job.PENDING_AGAIN and (records is Records.NOT_BEGUN or following is not Next.NONE):
        return False
    if following is not Next.NONE and records in Records.NOT_BEGUN | Records.REQUEUED:
        return False
    if (
        job in NAMELESS
        and records not in Records.NOT_BEGUN | Records.BEGUN | Records.REQUEUED | Records.CERTAIN
    ):
        return False
    if job is not Job.OVER or following is not Next.NONE or records is Records.CERTAIN:
        return end is End.NOTHING and not cancelled
    if end is End.LATE:
        return records in Records.BEGUN | Records.KILLED
    return end is not End.DONE_OR_KILLED or records in Records.BEGUN | Records.REQUEUED


ALL = [facts for row in product(Records, Job, End, Next, (False, True)) if possible(facts := Facts(*row))]


def state(facts: Facts) -> str:
    return decide(facts).verdict.state


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.verdict.name}: {row.why}")
def test_every_row_decides_about_some_member(row: Row) -> None:
    assert any(decide(facts) is row for facts in ALL)


@pytest.mark.parametrize("name", GROUPS)
def test_rows_of_a_group_may_stand_in_any_order(name: str) -> None:
    for facts, (one, other) in product(ALL, combinations(GROUPS[name], 2)):
        assert not (one.fits(facts) and other.fits(facts)), (facts, one.why, other.why)


def test_nothing_is_over_while_its_job_may_run() -> None:
    for facts in ALL:
        if facts.job in MAY_RUN and facts.next is Next.NONE and facts.records is not Records.CERTAIN:
            assert state(facts) != "ended", facts


def test_nor_while_the_next_job_may() -> None:
    for facts in ALL:
        if facts.next not in Next.NONE | Next.CANCELLED:
            assert state(facts) in ("pending", "unknown"), facts


def test_nothing_is_active_while_a_scheduler_does_not_answer() -> None:
    for facts in ALL:
        if facts.job in Job.SILENT | Job.SILENT_HERE and facts.next is Next.NONE:
            settled = facts.records is Records.CERTAIN or (
                facts.job is Job.SILENT_HERE and facts.records in DOUBTED
            )
            assert state(facts) == ("ended" if settled else "unknown"), facts


def test_a_certain_record_counts_more_than_any_answer_about_its_job() -> None:
    own = [facts for facts in ALL if facts.records is Records.CERTAIN and facts.next is Next.NONE]
    assert {decide(facts).verdict.name for facts in own if facts.job is not Job.PENDING_AGAIN} == {"RECORDED"}


def test_nothing_waits_or_runs_once_its_job_is_over() -> None:
    """But while accounting may still tell how it ended."""
    for facts in ALL:
        if facts.job is Job.OVER and facts.next is Next.NONE and facts.records is not Records.SENDING:
            active = state(facts) in ("pending", "running")
            assert active is (facts.end is End.LATE), facts


def test_no_ending_is_guessed() -> None:
    """What has recorded none has ended only if its scheduler says how, or castoff cancelled it."""
    for facts in ALL:
        if facts.records in Records.BEGUN | Records.NOT_BEGUN and state(facts) == "ended":
            known = facts.end in End.DONE | End.CANCELLED | End.OTHERWISE or facts.next is Next.CANCELLED
            assert known or facts.cancelled, facts


def test_that_castoff_cancelled_it_counts_only_where_its_scheduler_says_nothing() -> None:
    for facts in ALL:
        if facts.cancelled and facts.end not in End.NOTHING | End.STRANGE:
            assert decide(facts) is decide(facts._replace(cancelled=False)), facts


def test_what_is_to_resume_is_never_failed_by_its_own_job() -> None:
    names = {decide(facts).verdict.name for facts in ALL if facts.records in AGAIN and facts.job is Job.OVER}
    assert names.isdisjoint({"BY_SCHEDULER", "FORGOTTEN", "CANCELLED"})
