"""The state of the members of a run that castoff itself schedules, whose lock stands for a queue."""

from __future__ import annotations

from castoff.launcher.runs.states import AttemptStatus, MemberStatus, ended_as, known_ending
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.table import Facts, Job, Records, decide


def judge(records: RunRecords, elsewhere: str | None) -> list[MemberStatus]:
    """The states of a run's members. `elsewhere`: another host, which has to be asked whether the run's
    scheduler lives."""
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
    """A member's attempts as they are shown."""
    attempts = records.attempts.get(number, [])
    newest = max([records.begin.get(number, 0), *(one.number for one in attempts)])  # the rest is over
    statuses = []
    for attempt in attempts:
        end, alive = attempt.end, records.alive and attempt.number == newest
        # Until its scheduler has settled it, an ending is believed only if no scheduler is there to do so.
        if end and (attempt.settled or not (alive or (elsewhere and attempt.number == newest))):
            status = attempt.status("ended", known_ending(end.ending), end.code, end.reason, end.time)
        else:
            status = attempt.status("running") if alive else attempt.status("unknown", "unknown")
        statuses.append(status)
    return statuses


def _facts(records: RunRecords, elsewhere: str | None, number: int, attempts: list[AttemptStatus]) -> Facts:
    """What is known of a member with such attempts. While anything of the run lives, its lock is held."""
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
