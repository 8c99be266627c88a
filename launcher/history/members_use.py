"""What the members of an array use: of a few of them, on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from castoff.launcher.history.attempt_use import with_own_devices
from castoff.launcher.history.use import NodeUse, Use, average_words, use_of
from castoff.launcher.history.use_advice import advice_to_members
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus
from castoff.launcher.text.words import counted

MEMBERS = 16
"""The maximum number of members that are read, evenly spaced."""


class MembersUse(msgspec.Struct, frozen=True):
    """What some members of an array use."""

    members: Sequence[int]
    """The members that were read."""
    nodes: Sequence[NodeUse]
    """What each of them used on each of its nodes."""
    of: int
    """The number of members that have begun."""
    advice: str
    """A sentence; empty if nothing is plain for all of them."""

    @property
    def words(self) -> str:
        """What a member uses, in one line."""
        read = len(self.members)
        few = f"{read} of {self.of:,} members" if read < self.of else counted(read, "member")
        return f"{average_words(self.nodes, read)}; means and most memory of {few}"

    @property
    def facts(self) -> dict[str, Any]:
        """All of it as JSON."""
        facts: dict[str, Any] = msgspec.to_builtins(self)
        return facts


def members_use(run: RunDirectory, members: Sequence[MemberStatus]) -> MembersUse | None:
    """What the newest attempts of members use; None if they recorded nothing.

    Raises:
        CastoffError: a record cannot be read.
    """
    begun = [member for member in members if member.attempts]
    step = max(len(begun) / MEMBERS, 1)
    some = [begun[int(index * step)] for index in range(min(len(begun), MEMBERS))]
    planned, found = run.facts(), list[tuple[int, Sequence[NodeUse]]]()
    for member in some:
        if (use := use_of(run, member.member, member.attempts[-1].attempt)) is not None:
            found.append((member.member, with_own_devices(use, planned).nodes))
    if not found:
        return None
    nodes = [node for _, its in found for node in its]
    return MembersUse(
        members=[number for number, _ in found],
        nodes=nodes,
        of=len(begun),
        advice=advice_to_members(Use(nodes, len(nodes)), planned),
    )
