"""Which sample goes where: splits, global batches, loaders under signals."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, Subset, TensorDataset

from trainers.core.config import ConfigError, Evaluation, Training
from trainers.core.data import GlobalBatches, Seeded, evaluation_loader, iterate, split, training_loader
from trainers.core.distributed import Place

CPU = torch.device("cpu")

sizes = st.tuples(st.integers(1, 200), st.integers(1, 9), st.integers(1, 7))


def batches(length: int, size: int, world: int, rank: int, **given: Any) -> GlobalBatches:
    return GlobalBatches(length, size, Place(rank, world, CPU), seed=5, **given)


class Numbers(Dataset[Any]):
    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        return index, float(torch.rand(())), random.random()


@given(sizes)
def test_every_sample_once_in_an_epoch(given: tuple[int, int, int]) -> None:
    """Q5, Q19: no duplicates, no gaps, equally many steps on every rank."""
    length, size, world = given
    ranks = [batches(length, size, world, rank) for rank in range(world)]
    assert len({len(rank) for rank in ranks}) == 1
    seen: Counter[int] = Counter()
    for rank in ranks:
        for step, batch in enumerate(rank):
            assert len(batch) == max(rank.real(step), 1) <= size
            if rank.real(step):
                seen.update(index for _, index in batch)
    assert seen == Counter(range(length))
    for step in range(len(ranks[0])):
        assert sum(rank.real(step) for rank in ranks) == ranks[0].samples(step)


@given(sizes)
def test_what_is_trained_on_together_does_not_depend_on_the_world_size(given: tuple[int, int, int]) -> None:
    length, size, world = given
    alone = [{index for _, index in batch} for batch in batches(length, size * world, 1, 0)]
    ranks = [batches(length, size, world, rank) for rank in range(world)]
    together: list[set[int]] = [set() for _ in alone]
    for rank in ranks:
        for step, batch in enumerate(rank):
            if rank.real(step):
                together[step] |= {index for _, index in batch}
    assert together == alone


@given(sizes, st.integers(0, 40))
def test_going_on_in_the_middle(given: tuple[int, int, int], consumed: int) -> None:
    length, size, world = given
    whole = batches(length, size, world, 0)
    rest = batches(length, size, world, 0)
    rest.consumed = min(consumed, len(rest))
    assert list(rest) == list(whole)[rest.consumed :]


def test_epochs_differ_and_repeat() -> None:
    one, two = batches(50, 4, 2, 0), batches(50, 4, 2, 0)
    first = list(one)
    one.epoch = two.epoch = 1
    assert [index for batch in first for _, index in batch] != [i for batch in one for _, i in batch]
    assert list(one) == list(two)


def test_drop_last() -> None:
    assert len(batches(23, 4, 2, 0, drop_last=True)) == 2
    with pytest.raises(ConfigError, match=r"drop_last.*fewer than one global batch"):
        batches(7, 4, 2, 0, drop_last=True)
    with pytest.raises(ConfigError, match="empty"):
        batches(0, 4, 2, 0)


@given(st.integers(0, 300), st.integers(0, 9))
def test_splits_are_disjoint_and_whole(length: int, seed: int) -> None:
    """Q5: identical whatever the global generators hold."""
    torch.manual_seed(random.randrange(1000))
    parts = split(Numbers(length), [0.8, 0.1, 0.1], seed)
    indices = [index for part in parts for index in part.indices]
    assert sorted(indices) == list(range(length))
    torch.manual_seed(random.randrange(1000))
    assert [part.indices for part in split(Numbers(length), [0.8, 0.1, 0.1], seed)] == [
        part.indices for part in parts
    ]


@pytest.mark.parametrize("fractions", [[0.9, 0.2], [-0.1, 1.1]])
def test_fractions_that_are_none(fractions: list[float]) -> None:
    with pytest.raises(ConfigError, match="split"):
        split(Numbers(10), fractions, 0)


def training(**given: Any) -> Training:
    return Training(path="", num_epochs=1, batch_size=4, optimizer_type=None, **given)


def drawn(workers: int, epoch: int = 0, context: str | None = None) -> list[Any]:
    settings = training(num_workers=workers, multiprocessing_context=context)
    loader = training_loader(Numbers(20), settings, Place(0, 1, CPU), list)
    loader.batch_sampler.epoch = epoch  # type: ignore[union-attr]
    return [sample for batch in iterate(loader) for sample in batch]


def test_samples_draw_the_same_whoever_loads_them() -> None:
    assert drawn(0) == drawn(2)
    assert drawn(0) != drawn(0, epoch=1)


class Noisy(TensorDataset):
    """One of torch's that was made to draw."""

    def __getitem__(self, index: int) -> Any:
        return self.tensors[0][index] + torch.rand(())


@pytest.mark.parametrize("kind", [Noisy, TensorDataset])
def test_samples_of_tensors_are_seeded_if_they_can_draw(kind: type[TensorDataset]) -> None:
    """What only looks up goes without, and leaves the global generator alone."""
    seeded = Seeded(Subset(kind(torch.arange(9.0)), [3, 4, 5]), 0)
    torch.manual_seed(1)
    first = seeded[0, 1]
    drawn = torch.rand(())
    torch.manual_seed(2)
    assert seeded[0, 1] == first
    assert (drawn == torch.rand(())) == (kind is Noisy)


def test_a_loader_draws_nothing_from_the_global_generator() -> None:
    """The trap of `iter(DataLoader)`: it takes a seed from there."""
    loader = training_loader(Numbers(20), training(num_workers=1), Place(0, 1, CPU), list)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    iter(loader)
    assert torch.equal(torch.get_rng_state(), before)


class Slow(Numbers):
    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(0.02)
        return super().__getitem__(index)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_do_not_hear_signals(context: str) -> None:
    """A step takes TERM and USR2 to every process of the rank, from the first moment of its workers on."""
    import psutil

    settings = training(num_workers=2, multiprocessing_context=context)
    loader = training_loader(Slow(40), settings, Place(0, 1, CPU), list)
    others = set(psutil.Process().children(recursive=True))
    iterator = iterate(loader)
    seen = 0
    for _ in range(len(loader)):
        for child in set(psutil.Process().children(recursive=True)) - others:
            os.kill(child.pid, signal.SIGTERM)
            os.kill(child.pid, signal.SIGUSR2)
        seen += len(next(iterator))
    assert seen == 40


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_evaluation_counts_each_sample_once(length: int, size: int, world: int) -> None:
    """Q6: nothing is padded."""
    seen: list[int] = []
    for rank in range(world):
        loader = evaluation_loader(
            Numbers(length), Evaluation(batch_size=size), training(), list, rank=rank, world_size=world
        )
        seen += [sample[0] for batch in loader for sample in batch]
    assert sorted(seen) == list(range(length))
