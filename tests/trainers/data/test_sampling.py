"""Which sample goes where: splits, and what ranks train on together in each step."""

from __future__ import annotations

import pickle
import random
import resource
import tracemalloc
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.sampling import ShardPlan, micro_batches, order_of, shard
from castoff.trainers.task.splitting import split

lengths = st.integers(1, 300)
shapes = st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 5))
"""(batch_size, accumulation, world size)."""


def dealt_or_refused(length: int, shape: tuple[int, int, int]) -> ShardPlan:
    try:
        return shard(length, *shape, drop_last=False)
    except ConfigError:
        assume(False)
        raise


def micros(plan: ShardPlan, rank: int, consumed: int = 0, epoch: int = 0, *, shuffle: bool = True) -> Any:
    """A rank's micro-batches, in a list for each step."""
    found = micro_batches(plan, order_of(plan.length, 5, epoch, shuffle=shuffle), rank, consumed)
    steps = [[next(found) for _ in plan.micros(step, rank)] for step in range(consumed, plan.steps)]
    assert next(found, None) is None
    return steps


def together(plan: ShardPlan) -> list[set[int]]:
    """What all ranks train on in each step."""
    ranks = [micros(plan, rank) for rank in range(plan.world_size)]
    return [
        {sample for parts in step for part in parts for sample in part} for step in zip(*ranks, strict=True)
    ]


@given(lengths, shapes)
def test_every_sample_once_in_an_epoch(length: int, shape: tuple[int, int, int]) -> None:
    """Q5, Q19: no duplicates, no gaps but what is dropped; as many steps and micro-batches on every rank."""
    plan = dealt_or_refused(length, shape)
    batch_size, accumulation, world_size = shape
    ranks = [micros(plan, rank) for rank in range(world_size)]
    seen = [sample for steps in ranks for step in steps for micro in step for sample in micro]
    assert len(seen) == len(set(seen)) == sum(plan.samples(step) for step in range(plan.steps))
    assert set(seen) <= set(range(length))
    assert length - len(seen) < max(plan.global_batch / 2, 2 * accumulation * world_size)
    for parts in zip(*ranks, strict=True):
        assert len({len(part) for part in parts}) == 1
        assert len(parts[0]) <= accumulation
        for part in parts:
            sizes = [len(micro) for micro in part]
            assert min(2, batch_size) <= min(sizes) <= max(sizes) <= batch_size
            assert max(sizes) - min(sizes) <= 1


@given(lengths, shapes)
def test_what_is_trained_on_together_does_not_depend_on_the_world_size(
    length: int, shape: tuple[int, int, int]
) -> None:
    batch_size, accumulation, world_size = shape
    ways = [shape, (batch_size * world_size, accumulation, 1), (batch_size, accumulation * world_size, 1)]
    found = [dealt_or_refused(length, way) for way in ways]
    whole = length // found[0].global_batch
    stated = [together(plan) for plan in found]
    assert stated[0][: whole - 1] == stated[1][: whole - 1] == stated[2][: whole - 1]
    rests = [steps for plan, steps in zip(found, stated, strict=True) if plan.steps > whole]
    assert all(rest == rests[0] for rest in rests)


@given(lengths, shapes, st.integers(0, 40))
def test_resuming_in_the_middle_of_an_epoch(length: int, shape: tuple[int, int, int], consumed: int) -> None:
    plan = dealt_or_refused(length, shape)
    for rank in range(shape[2]):
        assert micros(plan, rank, min(consumed, plan.steps)) == micros(plan, rank)[consumed:]


def test_epochs_differ_and_repeat() -> None:
    plan = shard(50, 4, 1, 2, drop_last=False)
    assert micros(plan, 0) == micros(plan, 0)
    assert micros(plan, 0) != micros(plan, 0, epoch=1)
    assert micros(plan, 1, shuffle=False)[0] == [[1, 3, 5, 7]]


@pytest.mark.parametrize(
    ("length", "shape", "drop_last", "steps"),
    [
        (163, (8, 1, 2), False, [[[8], [8]]] * 9 + [[[5], [5]], [[5], [4]]]),  # 3 are left
        (171, (8, 1, 2), False, [[[8], [8]]] * 10 + [[[6], [5]]]),  # 11 are left: enough for a step
        (163, (8, 1, 2), True, [[[8], [8]]] * 10),
        (160, (8, 1, 2), True, [[[8], [8]]] * 10),
        (9, (2, 1, 2), False, [[[2], [2]]] * 2),  # evenly, that were 3 and 2, of which one rank has 1
        (13, (8, 2, 1), False, [[[7, 6]]]),
        (3, (1, 1, 2), False, [[[1], [1]]]),
        (7, (4, 1, 2), False, [[[4], [3]]]),
    ],
)
def test_the_end_of_an_epoch(
    length: int, shape: tuple[int, int, int], drop_last: bool, steps: list[list[list[int]]]
) -> None:
    plan = shard(length, *shape, drop_last=drop_last)
    shares = [[list(plan.micros(step, rank)) for rank in range(shape[2])] for step in range(plan.steps)]
    assert shares == steps


@pytest.mark.parametrize(
    ("length", "shape", "drop_last", "says"),
    [
        (0, (4, 1, 2), False, "empty"),
        (7, (4, 1, 2), True, r"drop_last.* has 7 samples, fewer than one global batch of 4 x 1 x 2"),
        (7, (4, 1, 4), False, r"batch_size: is 4, but with 7 .* on 4 ranks .* has 1, and needs 2"),
        (3, (1, 1, 4), False, r"has 3 samples, fewer than there are ranks \(4\); use fewer ranks"),
        (3, (2, 1, 4), False, r"has 3 samples, fewer than there are ranks \(4\); use fewer ranks"),
    ],
)
def test_too_few_samples(length: int, shape: tuple[int, int, int], drop_last: bool, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        shard(length, *shape, drop_last=drop_last)


class Numbers(Dataset[Any]):
    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        return index


@given(st.integers(0, 300), st.integers(0, 9))
def test_splits_are_disjoint_and_whole(length: int, seed: int) -> None:
    """Q5: identical whatever the global generators hold."""
    torch.manual_seed(random.randrange(1000))
    parts = split(Numbers(length), [0.8, 0.1, 0.1], seed)
    assert sorted(part[at] for part in parts for at in range(len(part))) == list(range(length))
    torch.manual_seed(random.randrange(1000))
    again = split(Numbers(length), [0.8, 0.1, 0.1], seed)
    assert [part.indices for part in again] == [part.indices for part in parts]


def test_a_part_travels_to_a_worker() -> None:
    part = pickle.loads(pickle.dumps(split(Numbers(90), [0.5, 0.5], 1)[1]))
    assert [part[at] for at in range(45)] == list(split(Numbers(90), [0.5, 0.5], 1)[1].indices)


@pytest.mark.parametrize("fractions", [[0.9, 0.2], [-0.1, 1.1]])
def test_fractions_that_are_none(fractions: list[float]) -> None:
    with pytest.raises(ConfigError, match="split"):
        split(Numbers(10), fractions, 0)


def test_no_memory_grows_with_the_set() -> None:
    """Sixty million samples, of which an array took 240 MB, and each epoch as much."""
    split(Numbers(9), [0.9, 0.1], 0)  # what is imported by the way
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        training, rest = split(Numbers(60_000_000), [0.9, 0.1], 0)
        plan = shard(len(training), 8, 1, 2, drop_last=False)
        order = order_of(plan.length, 0, 3, shuffle=True)
        first = next(micro_batches(plan, order, 1, 1000))
        found = training.__getitems__(first)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(sample) for sample in found] == [int] * 8
    assert len(rest) == 6_000_000
    assert len(pickle.dumps((training, order))) < 1000
    assert peak < 2e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"
