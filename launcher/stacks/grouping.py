"""Groups ranks with the same stack, the smallest group first. Pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import msgspec

from castoff.launcher.stacks.answers import RankStack


class Group(msgspec.Struct, frozen=True):
    """Ranks that are at the same place in the program; never empty."""

    ranks: list[RankStack]
    """By number."""

    @property
    def first(self) -> RankStack:
        """The rank whose stack is shown."""
        return self.ranks[0]


def grouped(ranks: Iterable[RankStack]) -> list[Group]:
    """Group ranks by the stacks of their main threads, or by why they have none: the odd ones first.

    Of groups of the same size, the one with the lowest rank is first. Ranks in a state that explains why they
    do not continue are apart from others.
    """
    groups: dict[Hashable, list[RankStack]] = {}
    for rank in sorted(ranks, key=_number):
        groups.setdefault(_key(rank), []).append(rank)
    return sorted(map(Group, groups.values()), key=lambda group: (len(group.ranks), _number(group.first)))


def numbers(ranks: Sequence[int]) -> str:
    """Ascending numbers as text: [0, 1, 2, 4, 5] becomes `0-2, 4, 5`."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    texts = (f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)
    return ", ".join(texts)


def _number(rank: RankStack) -> tuple[int, str, int]:
    return (1 << 40 if rank.rank is None else rank.rank), rank.host, rank.pid


def _key(rank: RankStack) -> Hashable:
    state = rank.state if rank.state in "DTtZ" else ""
    if rank.threads:
        return state, *(frame.key for frame in rank.threads[0].frames)
    return state, rank.reason, rank.waits_in
