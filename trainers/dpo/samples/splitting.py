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
    """Whether no training sample shares anything with a validation sample."""


def divided_by_what_they_share(things: Sequence[Collection[Hashable]], share: float, seed: int) -> Division:
    """Divide samples into two sets, so that samples which share something, directly or through others, stay
    together.

    `things`: what each sample may share with others, such as the digest of its structure's file. Whole
    families of samples are held out, in an order that follows from the seed: each that still fits into the
    share, and at least one. If no samples share anything, 414 of them at a share of 0.1 are divided into 372
    and 42. If all are one family, single samples are held out, which is no test on new structures.
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
    """Groups of samples that share something, directly or through others, in the order of their first
    samples.
    """
    parents = list(range(len(things)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    owners: dict[Hashable, int] = {}
    for number, own_things in enumerate(things):
        for thing in own_things:
            mine, other = root(number), root(owners.setdefault(thing, number))
            parents[max(mine, other)] = min(mine, other)
    families: dict[int, list[int]] = {}
    for number in range(len(things)):
        families.setdefault(root(number), []).append(number)
    return list(families.values())
