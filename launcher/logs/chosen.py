"""Which attempts and ranks `castoff logs` shows."""

from __future__ import annotations

from pathlib import Path

from castoff.launcher.config.array_indices import members_range
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.commands import MERGING
from castoff.launcher.logs.sources import Selection
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus


def members_of(run: RunDirectory, now: RunStatus, selection: Selection) -> list[MemberStatus]:
    """The members that the user named.

    Raises:
        CastoffError: one of them is none of the run's.
    """
    known = [one.member for one in now.members]
    for member in sorted(selection.members - {*known}):
        raise CastoffError(f"{run.id}: no member {member}; members are {members_range(known)}")
    return [one for one in now.members if selection.has_member(one.member)]


def check_ranks(run: RunDirectory, selection: Selection) -> str | None:
    """Check that each rank the user named exists and has a log of its own; returns why one has not, or None.

    Raises:
        CastoffError: there is no such rank.
    """
    plan = run.facts()
    count = plan.ranks
    if count is not None and (wrong := sorted(rank for rank in selection.ranks if rank >= count)):
        raise CastoffError(f"{run.id}: no rank {wrong[0]}; ranks are 0 to {count - 1}")
    if selection.ranks and plan.launcher not in MERGING and not plan.per_rank_logs:
        return f"{run.id}: its ranks share one log a node; one has its own only where it fails first"
    return None


def attempts_of(run: RunDirectory, now: RunStatus, selection: Selection) -> list[tuple[int, AttemptStatus]]:
    """The attempts that the user named, each with its member; the newest attempt of each member if none was
    named.

    Raises:
        CastoffError: there is none, or a member that was named has none.
    """
    chosen, problems = [], []
    for member in members_of(run, now, selection):
        try:
            chosen.append((member.member, _attempt(run, now, member, selection.attempt)))
        except CastoffError as error:
            problems.append(error)
    if problems and (selection.members or not chosen):
        raise problems[0]
    return chosen


def _attempt(run: RunDirectory, now: RunStatus, member: MemberStatus, attempt: int | None) -> AttemptStatus:
    number = member.member
    which = f"member {number} " if len(now.members) > 1 else ""
    known = {one.attempt: one for one in member.attempts}
    if not known:
        because = f": {now.reason}" if now.reason else f", it is {member.state}"
        raise CastoffError(f"{run.id}: {which}has not begun, so it has no logs{because}")
    chosen = known.get(max(known) if attempt is None else attempt)
    if chosen is None:
        listed = ", ".join(map(str, known))
        raise CastoffError(f"{run.id}: {which}has no attempt {attempt}; there is {listed}")
    if chosen.ended and not run.script_log(number).exists() and not Path(chosen.logs).exists():
        because = f": {chosen.reason}" if chosen.reason else ""
        raise CastoffError(f"{run.id}: {chosen.ending} before it began, so it has no logs{because}")
    return chosen
