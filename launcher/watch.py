"""The states of runs, from their own records and, for local runs, from their scheduler's lock.

An attempt without an ending whose scheduler is gone is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from launcher.local.control import is_alive
from launcher.runs import Run, read_record

_WORST_FIRST = (
    "unknown",
    "failed",
    "out-of-memory",
    "node-failure",
    "walltime",
    "preempted",
    "cancelled",
    "again",
    "done",
)


class AttemptStatus(msgspec.Struct, frozen=True):
    """One start of a member."""

    attempt: int
    state: str
    """running, ended or unknown."""
    ending: str | None
    code: int | None
    host: str | None
    started: float | None
    """Seconds since the epoch."""
    ended: float | None
    failure: dict[str, Any] | None
    """The first rank that failed: rank, host, code, signal, time."""
    logs: str
    """The folder of the ranks' logs."""


class MemberStatus(msgspec.Struct, frozen=True):
    """One member of a run and its attempts."""

    member: int
    state: str
    """pending, running, ended or unknown."""
    ending: str | None
    attempts: list[AttemptStatus]


class RunStatus(msgspec.Struct, frozen=True):
    """What became of a run so far."""

    id: str
    name: str
    site: str
    scheduler: str
    job: str | None
    """The scheduler's id."""
    directory: str
    state: str
    """pending, running, ended or unknown."""
    ending: str | None
    """Derived from the members': the worst of them; None while it goes on."""
    code: int | None
    """The first code that is not 0, else 0; None while it goes on or is unknown."""
    members: list[MemberStatus]


def status(run: Run) -> RunStatus:
    """The status of a run, read from its directory."""
    plan, submission = run.plan(), run.submission()
    alive = is_alive(run)
    refused = "error" in submission
    attempts = run.attempts()
    members = [
        _member(run, number, [(a, folder) for m, a, folder in attempts if m == number], alive, refused)
        for number in range(plan.get("array_count") or 1)
    ]
    state = _joint_state([member.state for member in members])
    over = state in ("ended", "unknown")
    return RunStatus(
        id=run.id,
        name=str(plan.get("name", run.id)),
        site=str(plan.get("site", "")),
        scheduler=str(plan.get("scheduler", "")),
        job=submission.get("job"),
        directory=str(run.path),
        state=state,
        ending=_worst(member.ending for member in members) if over else None,
        code=_code(members) if state == "ended" else None,
        members=members,
    )


def condition_holds(condition: str, run: Run) -> bool | None:
    """Whether a dependency's condition holds of a run; False where it never will, None not yet."""
    now = status(run)
    if condition == "after":
        return True if now.state in ("running", "ended", "unknown") else None
    if now.state in ("pending", "running"):
        return None
    well = now.ending == "done"
    return condition == "afterany" or well == (condition == "afterok")


def _member(
    run: Run, number: int, attempts: list[tuple[int, Path]], alive: bool, refused: bool
) -> MemberStatus:
    found = [_attempt(run, number, attempt, folder, alive) for attempt, folder in attempts]
    state: str
    ending: str | None
    if refused:
        state, ending = "ended", "failed"
    elif not found:
        state, ending = ("pending", None) if alive else ("unknown", "unknown")
    else:
        last = found[-1]
        state, ending = last.state, last.ending
        if ending == "again" and alive:
            state, ending = "pending", None  # its next attempt is about to begin
    return MemberStatus(number, state, ending, found)


def _attempt(run: Run, member: int, attempt: int, folder: Path, alive: bool) -> AttemptStatus:
    start, end = read_record(folder / "start.json"), read_record(folder / "ending.json")
    state = "ended" if end else "running" if alive else "unknown"
    return AttemptStatus(
        attempt=attempt,
        state=state,
        ending=end.get("ending") if end else None if alive else "unknown",
        code=end.get("code"),
        host=start.get("host"),
        started=start.get("time"),
        ended=end.get("time"),
        failure=read_record(folder / "failure.json") or None,
        logs=str(run.logs / f"{member}.{attempt}"),
    )


def _joint_state(states: list[str]) -> str:
    if len(set(states)) == 1:
        return states[0]
    if {"running", "pending"} & set(states):
        return "running"
    return "unknown"


def _worst(endings: Iterable[str | None]) -> str | None:
    known = [ending for ending in endings if ending is not None]
    return min(known, key=_WORST_FIRST.index, default=None)


def _code(members: list[MemberStatus]) -> int:
    codes = [member.attempts[-1].code or 0 for member in members if member.attempts]
    refused = any(member.ending == "failed" and not member.attempts for member in members)
    return next((code for code in codes if code), 1 if refused else 0)
