"""Which samples are held out: none that shares a structure with a training sample."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.randomness import SPLIT, derived


class Division(NamedTuple):
    """Sample indices of the training and validation sets, both in the same random order."""

    train: list[int]
    validation: list[int]
    apart: bool
    """Whether none of them shares anything with one of the others."""


def divided_by_what_they_share(things: Sequence[Collection[Hashable]], share: float, seed: int) -> Division:
    """Divide samples, those that have a thing in common going the same way, from one to the next.

    `things`: of each sample, as the digest of its structure's file. Whole families of samples are held out,
    in an order that follows from the seed, each that fits into what is still missing from the share; but at
    least one. Where every sample has a thing of its own, 414 of them at a share of 0.1 are 372 and 42. Where
    all are one family, samples themselves are held out, which is then no test on new structures.
    """
    total = len(things)
    wanted = total - int(total * (1 - share) + 1e-9)
    families = _families(things)
    apart = len(families) > 1 or not wanted
    if not apart:
        families = [[number] for number in range(total)]
    order = [families[number] for number in Permutation(len(families), derived(SPLIT, seed))]
    held: set[int] = set()
    for family in order:
        if len(held) + len(family) <= wanted:
            held.update(family)
    if wanted and not held and len(order) > 1:
        held.update(sorted(order, key=len)[0])
    shuffled = [number for family in order for number in family]
    train = [number for number in shuffled if number not in held]
    return Division(train, [number for number in shuffled if number in held], apart)


def _families(things: Sequence[Collection[Hashable]]) -> list[list[int]]:
    """Samples that have something in common, from one to the next; in the order of their first ones."""
    parents = list(range(len(things)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    owners: dict[Hashable, int] = {}
    for number, each in enumerate(things):
        for thing in each:
            mine, other = root(number), root(owners.setdefault(thing, number))
            parents[max(mine, other)] = min(mine, other)
    families: dict[int, list[int]] = {}
    for number in range(len(things)):
        families.setdefault(root(number), []).append(number)
    return list(families.values())
