"""The states of a run's members when castoff itself schedules the run: on this machine or in an allocation.

It follows from the run's records, and from whether its scheduler is alive.
"""

from __future__ import annotations

from castoff.launcher.runs.states import MemberStatus, known_ending
from castoff.launcher.status.survey import RunRecords


def judge(records: RunRecords, elsewhere: str | None) -> list[MemberStatus]:
    """The states of a run's members. `elsewhere`: another host, which has to be asked whether the run's
    scheduler lives."""
    return [_member(records, elsewhere, number, records.begin.get(number)) for number in records.numbers]


def _member(records: RunRecords, elsewhere: str | None, number: int, begin: int | None) -> MemberStatus:
    """One member's state. `begin`: the attempt that the newest submission starts with; None: it does not
    start this member."""
    attempts = records.attempts.get(number, [])
    newest = max([begin or 0, *(one.number for one in attempts)])  # what came before is over
    found = []
    for one in attempts:
        alive = records.alive and one.number == newest
        # Until its scheduler has settled it, an ending is believed only if no scheduler is there to do so.
        believed = one.settled or not (alive or (elsewhere and one.number == newest))
        if one.end and believed:
            end = one.end
            found.append(one.status("ended", known_ending(end.ending), end.code, end.reason, end.time))
        else:
            found.append(one.status("running") if alive else one.status("unknown", "unknown"))
    if begin is not None and not found and records.submission and records.submission.error is not None:
        return MemberStatus(number, "ended", "failed", found)
    if begin is not None and records.alive and (not found or found[-1].attempt < begin):
        return MemberStatus(number, "pending", None, found)
    is_active = bool(attempts) and attempts[-1].requeue and not records.stop_requested
    if found and found[-1].state == "ended" and is_active and records.alive:
        return MemberStatus(number, "pending", None, found)  # its next attempt is about to begin
    if not found or (
        found[-1].state == "ended" and is_active and elsewhere
    ):  # it may be about to begin there
        return MemberStatus(number, "unknown", "unknown", found)
    return MemberStatus(number, found[-1].state, found[-1].ending, found)
