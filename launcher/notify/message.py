"""What a message says about a run, an array or a group, and when one is due.

Job scripts say the same (templates/machinery/notify.sh), for what they know: how their own member ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.runs.records import Messages
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import EXPLAINED, AttemptStatus, MemberStatus, RunStatus, why
from castoff.launcher.status.script_output import failure_reason
from castoff.launcher.text.failure import HANG
from castoff.launcher.text.words import brief, listed

_LONGEST = 400
"""Limit of a name or a reason in a message, in bytes."""

_NAMED = 5
"""Number of members that a message names for each ending."""


class Subject(NamedTuple):
    """A run, or the runs of a group, about which messages are sent together."""

    run: RunDirectory
    """The run whose directory has the records of the messages; for a group, any of its runs."""
    name: str
    id: str
    messages: Messages
    statuses: list[RunStatus]
    complete: bool = True
    """Whether no further run will be added to it."""

    @property
    def over(self) -> bool:
        """Whether nothing of it can change without a resubmission."""
        return self.complete and all(one.over or one.never_begins for one in self.statuses)

    @property
    def members(self) -> list[tuple[RunStatus, MemberStatus]]:
        """All members of all runs."""
        return [(status, member) for status in self.statuses for member in status.members]


class Message(NamedTuple):
    """A message, for any service."""

    event: str
    """`end`, `fail` or `hang`; a run without an array has `hang-N`, as each hang is reported."""
    title: str
    reason: str
    subject: Subject
    state: str
    is_bad: bool
    seconds: int

    @property
    def where(self) -> str:
        """The line that follows the reason."""
        return f"{self.subject.statuses[0].site}, after {brief(self.seconds)}: {self.command}"

    @property
    def command(self) -> str:
        """The command that shows more."""
        return f"castoff status {self.subject.id}"

    @property
    def text(self) -> str:
        """All but the title, as lines."""
        return "\n".join(filter(None, [self.reason, self.where]))

    @property
    def values(self) -> dict[str, str]:
        """What the places in a webhook's body stand for, each as part of a JSON string."""
        plain = {
            "title": self.title,
            "reason": self.reason,
            "name": self.subject.name,
            "run": self.subject.id,
            "command": self.command,
            "site": self.subject.statuses[0].site,
        }
        values = {name: _json(text) for name, text in plain.items()}
        lines = [*filter(None, [values["reason"]])]
        lines.append(f"{values['site']}, after {brief(self.seconds)}: {values['command']}")
        values |= {"text": "\\n".join(lines), "text_paragraphs": "\\n\\n".join(lines)}
        values |= {f"{name}_html": _html(values[name]) for name in ("title", "text")}
        return values | {
            "event": self.event.partition("-")[0],
            "state": self.state,
            "seconds": str(self.seconds),
            "priority": "4" if self.is_bad else "3",
            "tag": "rotating_light" if self.is_bad else "white_check_mark",
        }

    def fill(self, body: str) -> str:
        """A webhook's body with the values of this message."""
        return filled(body, self.values)


def filled(body: str, values: Mapping[str, str]) -> str:
    """A body with values in place of `{title}` and the like."""
    return re.sub(rf"\{{({'|'.join(values)})\}}", lambda place: values[place[1]], body)


def example() -> Message:
    """A message to try a receiver with."""
    status = RunStatus(
        name="example",
        site="your site",
        state="ended",
        ending="done",
        id="example",
        directory="",
        final=True,
        walltime=None,
        members=[],
    )
    subject = Subject(RunDirectory(Path("example")), "castoff", "example", Messages([], []), [status])
    return Message("end", "castoff: a test message", "", subject, "done", False, 0)


def due(subject: Subject, is_settled: Callable[[Subject, str], bool] = lambda *_: False) -> Iterator[Message]:
    """Yield the messages about a subject's present state. `is_settled`: whether an event's message needs not
    be made again.
    """
    on, members = subject.messages.on, subject.members
    several = len(members) > 1
    bad = [one for one in members if _is_bad(*one)]
    if subject.over:
        hung = any(_hangs(member)[-1:] == [member.attempts[-1]] for _, member in members if member.attempts)
        wanted = "end" in on or ("fail" in on and bad) or ("hang" in on and hung)
        if wanted and not is_settled(subject, "end"):
            yield _of_all(subject, members, bad) if several else _of_one(subject, "end", *members[0])
        return
    if several and "fail" in on and bad and not is_settled(subject, "fail"):
        yield _of_one(subject, "fail", *bad[0])
    if "hang" in on:
        yield from (one for one in _of_hangs(subject, several=several) if not is_settled(subject, one.event))


def _of_hangs(subject: Subject, *, several: bool) -> Iterator[Message]:
    for _, member in subject.members:
        for attempt in _hangs(member):
            if attempt is member.attempts[-1]:
                continue  # perhaps the run is over in a moment, and the message about that has the reason
            event = "hang" if several else f"hang-{attempt.attempt}"
            title = f"{subject.name}: hang, restarted" + (f" (member {member.member})" if several else "")
            reason = "; ".join(why(attempt.failure, attempt.reason))
            yield Message(event, title, reason, subject, "running", True, _seconds(subject))
            if several:
                return


def _hangs(member: MemberStatus) -> list[AttemptStatus]:
    return [one for one in member.attempts if one.failure is not None and one.failure.reason == HANG]


def _is_bad(status: RunStatus, member: MemberStatus) -> bool:
    """Whether a member failed, or can no longer begin."""
    if status.never_begins:
        return member.state == "pending"
    return member.ending in EXPLAINED or (member.ending == "unknown" and not status.unsettled)


def _of_one(subject: Subject, event: str, status: RunStatus, member: MemberStatus) -> Message:
    """The message about one member, which may be all."""
    never = status.never_begins and member.state == "pending"
    word = "never begins" if never else member.word
    title = (
        f"{status.name}: member {member.member}: {word}"
        if len(status.members) > 1
        else f"{status.name}: {word}"
    )
    if subject.name != status.name:
        title = f"{subject.name}: {title}"
    bad = _is_bad(status, member)
    if never or not member.attempts:
        reason = status.reason
    else:
        reason = failure_reason(RunDirectory(Path(status.directory)), [member], member.ending)
    return Message(event, title, reason or "", subject, word, bad, _seconds(subject))


def _of_all(
    subject: Subject,
    members: list[tuple[RunStatus, MemberStatus]],
    bad: list[tuple[RunStatus, MemberStatus]],
) -> Message:
    """The message that an array or a group is over."""
    good = sum(member.ending == "done" for _, member in members)
    rest: dict[str, list[str]] = {}
    for status, member in members:
        if member.ending != "done":
            one = str(member.member) if len(subject.statuses) == 1 else status.name
            rest.setdefault(member.word, []).append(one)
    reason = "; ".join(f"{word}: {listed(names, _NAMED)}" for word, names in sorted(rest.items()))
    title = f"{subject.name}: {good} of {len(members)} done"
    state = "failed" if bad else "done" if good == len(members) else "cancelled"
    return Message("end", title, reason, subject, state, bool(bad), _seconds(subject))


def _seconds(subject: Subject) -> int:
    """How long it has taken since the first attempt began."""
    attempts = [attempt for _, member in subject.members for attempt in member.attempts]
    begun = [one.started for one in attempts if one.started]
    ended = [one.ended for one in attempts if one.ended] if subject.over else []
    return max(int(max(ended, default=time.time()) - min(begun)), 0) if begun else 0


def _json(text: str) -> str:
    """A text as part of a JSON string, cut and on one line."""
    cut = text.encode("utf-8", "surrogateescape")[:_LONGEST]
    clean = bytes(32 if byte < 32 or byte == 127 else byte for byte in cut).decode(errors="ignore")
    return clean.replace("\\", "\\\\").replace('"', '\\"')


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
