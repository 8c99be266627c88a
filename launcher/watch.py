"""The states of runs, from their own records and, for local runs, from their scheduler's lock.

An attempt without an ending whose scheduler is gone is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from launcher.local.control import SETTLED, is_alive, other_host
from launcher.runs import Run, read_record

_POLL = 0.2

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


class Failure(msgspec.Struct, frozen=True):
    """The first rank that failed, as the starter or a shim recorded it."""

    code: int
    rank: int | None = None
    """None where torchrun started the ranks: it alone knows which it was."""
    host: str | None = None
    signal: str | None = None
    time: float | None = None


class AttemptStatus(msgspec.Struct, frozen=True):
    """One start of a member."""

    attempt: int
    state: str
    """running, ended or unknown."""
    ending: str | None
    code: int | None
    reason: str | None
    """Why it ended so, where its scheduler knows more than the ending says."""
    host: str | None
    started: float | None
    """Seconds since the epoch; None if it never began."""
    ended: float | None
    failure: Failure | None
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
    reason: str | None
    """Why it is unknown, or why it was never submitted."""
    members: list[MemberStatus]

    @property
    def over(self) -> bool:
        """Whether nothing more will happen, as far as is known."""
        return self.state in ("ended", "unknown")


class _Start(msgspec.Struct):
    """A start.json as the script writes it; what does not fit counts as not yet written."""

    host: str | None = None
    time: float | None = None


class _Ending(msgspec.Struct):
    """An ending.json, by the script or by its scheduler."""

    ending: str
    code: int
    time: float | None = None
    reason: str | None = None


_Record = TypeVar("_Record", bound=msgspec.Struct)


def status(run: Run) -> RunStatus:
    """The status of a run, read from its directory."""
    # Before the records: what is written between the two looks then counts.
    alive = is_alive(run)
    plan, submission = run.plan(), run.submission()
    attempts: dict[int, list[tuple[int, Path]]] = {}
    for member, attempt, folder in run.attempts():
        attempts.setdefault(member, []).append((attempt, folder))
    count = plan.get("array_count") or 1
    members = [
        _member(run, number, attempts.get(number, []), alive, "error" in submission)
        for number in sorted({*range(count), *attempts})
    ]
    state = _joint_state({member.state for member in members})
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
        reason=_reason(run, submission, state),
        members=members,
    )


def failure_words(failure: Failure) -> str:
    """A failure in one line."""
    who = "a rank" if failure.rank is None else f"rank {failure.rank}"
    how = f"killed by {failure.signal}" if failure.signal else f"exit code {failure.code}"
    return f"{who} on {failure.host} failed first: {how}"


def wait(run: Run, timeout: float | None = None) -> RunStatus:
    """The status of a run as soon as it is over, or when `timeout` seconds have passed."""
    give_up = None if timeout is None else time.monotonic() + timeout
    while True:
        now = status(run)
        if now.over:
            return now
        left = _POLL if give_up is None else give_up - time.monotonic()
        if left <= 0:
            return now
        time.sleep(min(_POLL, left))


def condition_holds(condition: str, run: Run) -> bool | None:
    """Whether a dependency's condition holds of a run; False where it never will, None not yet."""
    now = status(run)
    if condition == "after":
        return True if now.state != "pending" else None
    if not now.over:
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
    start = _typed(folder / "start.json", _Start) or _Start()
    end = None
    if not alive or (folder / SETTLED).exists():
        end = _typed(folder / "ending.json", _Ending)
    return AttemptStatus(
        attempt=attempt,
        state="ended" if end else "running" if alive else "unknown",
        ending=end.ending if end else None if alive else "unknown",
        code=end.code if end else None,
        reason=end.reason if end else None,
        host=start.host,
        started=start.time,
        ended=end.time if end else None,
        failure=_typed(folder / "failure.json", Failure),
        logs=str(run.logs / f"{member}.{attempt}"),
    )


def _typed(path: Path, kind: type[_Record]) -> _Record | None:
    """A record; None where it is not there, not yet whole, or not such a record."""
    try:
        return msgspec.convert(read_record(path), kind)
    except msgspec.ValidationError:
        return None


def _reason(run: Run, submission: dict[str, Any], state: str) -> str | None:
    """Why it was never submitted, or why nobody knows how it ended."""
    if "error" in submission:
        return f"it could not be submitted: {submission['error']}"
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so nothing tells whether its script still runs"
    if host := other_host(run):
        return f"its scheduler runs, or ran, on {host}: ask there"
    if not submission.get("job"):
        return "`castoff submit` was killed before its scheduler answered"
    return (
        "its scheduler is gone and no ending was written: everything was killed at once, or the "
        "machine went down; castoff does not guess. Read the logs, then submit again"
    )


def _joint_state(states: set[str]) -> str:
    if len(states) == 1:
        return next(iter(states))
    if {"running", "pending"} & states:
        return "running"
    return "unknown"


def _worst(endings: Iterable[str | None]) -> str | None:
    # A word that is none of castoff's, from a record that somebody else wrote, is as good as none.
    known = [ending if ending in _WORST_FIRST else "unknown" for ending in endings if ending is not None]
    return min(known, key=_WORST_FIRST.index, default=None)


def _code(members: list[MemberStatus]) -> int:
    codes = [member.attempts[-1].code or 0 for member in members if member.attempts]
    refused = any(member.ending == "failed" and not member.attempts for member in members)
    return next((code for code in codes if code), 1 if refused else 0)
