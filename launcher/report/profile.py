"""The profile of a training's steps, which a trainer writes beside an attempt's metrics, as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import msgspec

from castoff.launcher.report.cells import Table
from castoff.launcher.runs.records import Number, Seconds, read
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus, attempt_words

PROFILE = "profile.json"
"""The name of this file in an attempt's folder."""

_ROWS = 64
"""The maximum number of ranks and of operations that are shown."""

_Share = Annotated[float, msgspec.Meta(ge=0, le=1.0001)]
_Name = Annotated[str, msgspec.Meta(max_length=1000)]


class RankShares(msgspec.Struct, frozen=True):
    """What the time of a rank's steps was spent on; the shares add up to 1."""

    rank: Number
    seconds: Seconds
    compute: _Share
    communication: _Share
    data: _Share
    idle: _Share


class Operation(msgspec.Struct, frozen=True):
    """An expensive operation, over all steps of one rank."""

    name: _Name
    seconds: Seconds
    calls: Number
    share: float


class Profile(msgspec.Struct, frozen=True):
    """profile.json, written by castoff's trainer."""

    first_step: Number
    steps: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
    folder: _Name
    ranks: list[RankShares]
    operations_of: Number
    operations: list[Operation]


class ProfileFacts(NamedTuple):
    """The profile that a page shows."""

    attempt: str
    """Member and attempt, as `3.1`; only the attempt, as `1`, without an array."""
    profile: Profile


class Shown(NamedTuple):
    """A profile on a page."""

    words: str
    shares: Table
    operations: Table
    folder: str


def newest(run: RunDirectory, members: Iterable[MemberStatus], *, is_array: bool) -> ProfileFacts | None:
    """The newest profile of the first member that has one.

    Raises:
        CastoffError: a record exists but cannot be read.
    """
    for member in members:
        for attempt in reversed(member.attempts):
            folder = run.path / "attempts" / f"{member.member}.{attempt.attempt}"
            found = read(folder / PROFILE, Profile)
            if found is not None:
                words = attempt_words(member.member, attempt.attempt, is_array=is_array)
                return ProfileFacts(words, found)
    return None


def shown(facts: ProfileFacts | None) -> Shown | None:
    """A profile as tables; pure."""
    if facts is None:
        return None
    attempt, profile = facts
    last = profile.first_step + profile.steps - 1
    steps = f"step {last}" if profile.steps == 1 else f"steps {profile.first_step} to {last}"
    shares = [
        (
            str(each.rank),
            _milliseconds(each.seconds / profile.steps),
            *(f"{share:.1%}" for share in (each.compute, each.communication, each.data, each.idle)),
        )
        for each in profile.ranks[:_ROWS]
    ]
    operations = [
        (
            each.name,
            _milliseconds(each.seconds / profile.steps),
            f"{each.share:.1%}",
            f"{each.calls / profile.steps:.4g}",
        )
        for each in profile.operations[:_ROWS]
    ]
    of_step = ("ms per step", "share", "calls per step")
    headings = ("rank", "ms per step", "compute", "communication", "waiting for data", "idle")
    return Shown(
        f"{steps.capitalize()} of attempt {attempt}",
        Table("What the time is spent on", headings, shares, range(len(headings))),
        Table(
            f"Most expensive operations on rank {profile.operations_of}",
            ("operation", *of_step),
            operations,
            (1, 2, 3),
        ),
        profile.folder,
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.4g}"
