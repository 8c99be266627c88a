"""The state of the members of a run that castoff itself schedules: the run's lock shows whether it is
active.
"""

from __future__ import annotations

from castoff.launcher.runs.states import AttemptStatus, MemberStatus, ended_as, known_ending
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.table import Facts, Job, Records, decide


def judge(records: RunRecords, elsewhere: str | None) -> list[MemberStatus]:
    """Return the states of a run's members. `elsewhere`: the host of the run's scheduler, if that is another
    host, where only a command can tell whether the scheduler is alive.
    """
    members = []
    for number in records.numbers:
        attempts = _attempts(records, elsewhere, number)
        state = decide(_facts(records, elsewhere, number, attempts)).verdict.state
        if state == "ended":
            members.append(ended_as(number, attempts))
        else:
            unknown = "unknown" if state == "unknown" else None
            members.append(MemberStatus(number, state, unknown, attempts))
    return members


def _attempts(records: RunRecords, elsewhere: str | None, number: int) -> list[AttemptStatus]:
    """Return what users see of a member's attempts."""
    attempts = records.attempts.get(number, [])
    # earlier attempts are over
    newest = max([records.begin.get(number, 0), *(one.number for one in attempts)])
    statuses = []
    for attempt in attempts:
        end, alive = attempt.end, records.alive and attempt.number == newest
        # An ending that the local scheduler has not confirmed counts only if that scheduler is gone.
        if end and (attempt.settled or not (alive or (elsewhere and attempt.number == newest))):
            status = attempt.status("ended", known_ending(end.ending), end.code, end.reason, end.time)
        else:
            status = attempt.status("running") if alive else attempt.status("unknown", "unknown")
        statuses.append(status)
    return statuses


def _facts(records: RunRecords, elsewhere: str | None, number: int, attempts: list[AttemptStatus]) -> Facts:
    """Return what is known of a member with these attempts. While any process of the run lives, the run's
    lock is held.
    """
    begin = records.begin.get(number)
    if begin is not None and not attempts and records.submission and records.submission.error is not None:
        return Facts(Records.REFUSED)
    if begin is not None and records.alive and (not attempts or attempts[-1].attempt < begin):
        return Facts(Records.NOT_BEGUN, Job.PENDING)
    if not attempts:
        return Facts(Records.UNSENT)
    job = Job.RUNNING if records.alive else Job.SILENT if elsewhere else Job.OVER
    if attempts[-1].state != "ended":
        return Facts(Records.BEGUN, job)
    resumes = records.attempts[number][-1].requeue and not records.stop_requested
    return Facts(Records.RESUMES if resumes else Records.CERTAIN, job)
