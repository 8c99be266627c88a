"""Finds runs that can never begin because they wait for runs that can never begin.

A scheduler says only of the first of them that its dependency can never be satisfied; it keeps that job in
its queue, so that the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus

_PAIRED = "aftercorr"


def hopeless(found: Sequence[RunStatus]) -> list[RunStatus]:
    """The same statuses, with the members marked that wait for runs among them that can never begin.

    Raises:
        CastoffError: a run's record of its submission cannot be read.
    """
    now = {status.directory: status for status in found}
    left = [status.directory for status in found if _waits_in_vain(status)]
    if not left:
        return [*found]
    followers: dict[str, list[tuple[str, str]]] = {}
    for status in found:
        record = RunDirectory(Path(status.directory)).submission() if status.state == "pending" else None
        for condition, paths in record.after.items() if record else ():
            for path in paths:
                followers.setdefault(path, []).append((condition, status.directory))
    while left:
        other = now[left.pop()]
        for condition, directory in followers.get(other.directory, ()):
            marked = _marked(now[directory], condition, other)
            if marked is not now[directory]:
                now[directory] = marked
                left.append(directory)
    return [now[status.directory] for status in found]


def _waits_in_vain(status: RunStatus) -> bool:
    return not status.unsettled and any(member.dependency_never_satisfied for member in status.members)


def _marked(status: RunStatus, condition: str, other: RunStatus) -> RunStatus:
    """A run's status, with the members marked that wait for members of `other` that can never begin."""
    never = {member.member for member in other.members if member.dependency_never_satisfied}
    if condition != _PAIRED and not other.never_begins:
        return status
    reason = f"it waits for {other.id}, which never begins"
    members = [
        msgspec.structs.replace(member, dependency_never_satisfied=True, reason=reason)
        if member.state == "pending"
        and not member.dependency_never_satisfied
        and (condition != _PAIRED or member.member in never)
        else member
        for member in status.members
    ]
    if members == status.members:
        return status
    return msgspec.structs.replace(status, members=members, reason=reason)
