"""Batches of similar lengths: still every sample once, on any number of ranks, from any step on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset

from castoff.trainers.configuration.config import Evaluation, Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.length_batching import length_bucketed, lengths_of
from castoff.trainers.data.loaders import evaluation_loader, training_loader
from castoff.trainers.data.sampling import ShardPlan, micro_batches, order_of, shard
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task.splitting import split

shapes = st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(1, 4))
"""(batch_size, accumulation, world size)."""
samples = st.lists(st.integers(0, 60), min_size=1, max_size=300)
"""Their lengths."""


def dealt_or_refused(length: int, shape: tuple[int, int, int], *, drop_last: bool = False) -> ShardPlan:
    try:
        return shard(length, *shape, drop_last=drop_last)
    except ConfigError:
        assume(False)
        raise


def steps(
    lengths: Sequence[int], plan: ShardPlan, epoch: int = 0, consumed: int = 0
) -> list[list[list[int]]]:
    """For each step the micro-batches of all ranks."""
    order = order_of(plan.length, 5, epoch, shuffle=True)
    assert not isinstance(order, range)
    similar = length_bucketed(torch.tensor(lengths), plan, order, 5, epoch)
    found: list[list[list[int]]] = [[] for _ in range(consumed, plan.steps)]
    for rank in range(plan.world_size):
        micros = micro_batches(plan, similar, rank, consumed)
        for step, into in enumerate(found, consumed):
            into += [next(micros) for _ in plan.micros(step, rank)]
        assert next(micros, None) is None
    return found


@given(samples, shapes, st.booleans())
def test_every_sample_once_and_neighbours_together(
    lengths: list[int], shape: tuple[int, int, int], drop_last: bool
) -> None:
    """Those that are dropped are those that would have been; in a step no two micro-batches overlap."""
    plan = dealt_or_refused(len(lengths), shape, drop_last=drop_last)
    found = steps(lengths, plan)
    taken = [sample for step in found for micro in step for sample in micro]
    order = list(order_of(len(lengths), 5, 0, shuffle=True))
    assert sorted(taken) == sorted(order[: len(taken)])
    for step in found:
        ends = sorted(
            (min(stated), max(stated)) for stated in ([lengths[each] for each in part] for part in step)
        )
        assert all(longest <= shortest for (_, longest), (shortest, _) in itertools.pairwise(ends))


@given(samples, shapes)
def test_what_is_trained_on_together_does_not_depend_on_the_world_size(
    lengths: list[int], shape: tuple[int, int, int]
) -> None:
    batch_size, accumulation, world_size = shape
    ways = [shape, (batch_size * world_size, accumulation, 1), (batch_size, accumulation * world_size, 1)]
    plan = [dealt_or_refused(len(lengths), way) for way in ways]
    assume(len({each.bounds(each.steps - 1)[1] for each in plan}) == 1)  # the same are dropped
    together = [
        [{sample for micro in step for sample in micro} for step in steps(lengths, each)] for each in plan
    ]
    assert together[0] == together[1] == together[2]


@given(samples, shapes, st.integers(0, 40))
def test_resuming_in_the_middle_of_an_epoch(
    lengths: list[int], shape: tuple[int, int, int], consumed: int
) -> None:
    plan = dealt_or_refused(len(lengths), shape)
    consumed = min(consumed, plan.steps)
    assert steps(lengths, plan, consumed=consumed) == steps(lengths, plan)[consumed:]


def residues(number: int) -> list[int]:
    """Of so many proteins: as many as the chains of the Protein Data Bank have, about."""
    drawn = torch.randn(number, generator=torch.Generator().manual_seed(number))
    found: list[int] = (drawn * 0.5 + 5.2).exp().clamp(50, 500).long().tolist()
    return found


def padding(lengths: list[int], micros: Sequence[list[int]]) -> float:
    """Its part of what is computed."""
    computed = sum(len(each) * max(lengths[sample] for sample in each) for each in micros)
    return 1 - sum(lengths[sample] for each in micros for sample in each) / computed


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize(("number", "batch_size"), [(372, 8), (372, 2), (372, 32), (5000, 8), (20, 2)])
def test_little_is_padded_on_any_rank(number: int, batch_size: int, world_size: int) -> None:
    """Also where an epoch is three global batches, as with 32 on 4 ranks."""
    lengths, plan = residues(number), shard(number, batch_size, 1, world_size, drop_last=False)
    of_ranks: list[list[list[int]]] = [[] for _ in range(world_size)]
    for epoch in range(3):
        for step in steps(lengths, plan, epoch):
            for rank, micro in enumerate(step):
                of_ranks[rank].append(micro)
    assert max(padding(lengths, micros) for micros in of_ranks) < 0.2
    if batch_size > 2:
        shuffled = order_of(number, 5, 0, shuffle=True)
        assert padding(lengths, list(micro_batches(plan, shuffled, 0, 0))) > 0.4


def test_chance_is_left() -> None:
    """Other batches in each epoch, in an order without a trend, and each rank has the longest at times."""
    lengths, plan = residues(372), shard(372, 8, 1, 4, drop_last=False)
    one, other = steps(lengths, plan), steps(lengths, plan, epoch=1)
    assert not {frozenset(micro) for step in one for micro in step} & {
        frozenset(micro) for step in other for micro in step
    }
    means = [sum(lengths[each] for micro in step for each in micro) for step in one[: plan.steps - 1]]
    assert means not in (sorted(means), sorted(means, reverse=True))
    longest = [max(range(4), key=lambda rank: max(lengths[at] for at in step[rank])) for step in one + other]
    assert set(longest) == {0, 1, 2, 3}


@pytest.mark.parametrize(("number", "batch_size"), [(24, 8), (64, 8), (96, 4), (127, 2)])
def test_chance_is_left_in_a_small_set_too(number: int, batch_size: int) -> None:
    """No two of which are of one length: sorted, they would always lie side by side with the same ones."""
    lengths = [50 + 3 * each for each in range(number)]
    plan = shard(number, batch_size, 1, 1, drop_last=False)
    epochs = [
        {frozenset(micro) for step in steps(lengths, plan, epoch) for micro in step} for epoch in range(5)
    ]
    assert len(set.union(*epochs)) > 0.6 * sum(map(len, epochs))
    assert padding(lengths, [list(micro) for micro in epochs[0]]) < 0.25


def test_a_rank_with_several_micro_batches_has_short_and_long_ones() -> None:
    lengths = list(range(64))
    (step,) = steps(lengths, shard(64, 8, 4, 2, drop_last=False))
    assert sum(sum(micro) for micro in step[:4]) == sum(sum(micro) for micro in step[4:])


# --- Where it is used --------------------------------------------------------------------------------


class Long(Dataset[int]):
    """Samples of these lengths, which are their own numbers."""

    def __init__(self, lengths: Any):
        self.lengths = lengths

    def __len__(self) -> int:
        return 90

    def __getitem__(self, index: int) -> int:
        return index


LENGTHS = [(7 * each) % 90 for each in range(90)]
SETTINGS = Training(path="", num_epochs=1, batch_size=4, optimizer_type=None)


def batches(dataset: Any, settings: Training = SETTINGS, consumed: int = 0) -> Any:
    context = RankContext(0, 1, torch.device("cpu"), alone=True)
    groups = training_loader(dataset, settings, context, list).groups(1, consumed)
    return [micro.data for group in groups for micro in group.micros]


@pytest.mark.parametrize("said", [LENGTHS, torch.tensor(LENGTHS), torch.tensor(LENGTHS).numpy()])
def test_a_set_gives_the_lengths_of_its_samples(said: Any) -> None:
    found = batches(Long(said))
    assert sorted(itertools.chain(*found)) == list(range(90))
    spans = [max(LENGTHS[at] for at in batch) - min(LENGTHS[at] for at in batch) for batch in found]
    assert max(spans) < 30
    assert found[5:] == batches(Long(LENGTHS), consumed=5)
    assert found != batches(Long(None)) == batches(list(range(90)))


@pytest.mark.parametrize(
    "part", [split(Long(LENGTHS), [0.5, 0.5], 0)[1], Subset(Long(LENGTHS), [5, 3]), Subset(Long(LENGTHS), [])]
)
def test_so_does_a_part_of_it(part: Any) -> None:
    lengths = lengths_of(part)
    assert lengths is not None
    assert lengths.tolist() == [LENGTHS[part[at]] for at in range(len(part))]
    again = lengths_of(Subset(part, range(len(part))[::-1]))
    assert again is not None
    assert again.tolist() == lengths.tolist()[::-1]
    assert lengths_of(Subset(Long(None), [1, 0])) is None


def test_in_the_order_that_is_given_nothing_is_sorted() -> None:
    unshuffled = Training(path="", num_epochs=1, batch_size=4, optimizer_type=None, shuffle=False)
    assert batches(Long(LENGTHS), unshuffled)[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("world_size", [1, 3])
def test_validation_begins_with_the_longest(world_size: int) -> None:
    """In the same batches on any number of ranks."""
    found: list[Any] = [None] * 23
    for rank in range(world_size):
        loader = evaluation_loader(
            Long(LENGTHS), Evaluation(), SETTINGS, list, rank=rank, world_size=world_size
        )
        shares = list(loader)
        assert [each.samples for each in shares] == [len(each.data) for each in shares]
        found[rank::world_size] = [each.data for each in shares]
    assert [LENGTHS[at] for batch in found for at in batch] == list(range(89, -1, -1))
    assert [len(batch) for batch in found] == [4] * 22 + [2]


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ([1, 2, 3], r"has the shape \(3,\), but the set has 90 samples"),
        ([[1]] * 90, r"has the shape \(90, 1\), but the set has 90 samples"),
        ([1.5] * 90, r"has numbers of torch\.float32"),
        ([True] * 90, r"has numbers of torch\.bool"),
        ([*range(89), -4], r"has -4"),
        (["long"] * 90, r"is a list of 90"),
        (len, r"is a builtin_function_or_method"),
    ],
)
def test_invalid_lengths_are_refused(said: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"data: Long\.lengths {says}; it must hold a whole number"):
        batches(Long(said))
