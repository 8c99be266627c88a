"""Loaders that can resume anywhere: groups, workers under signals, and streams of samples."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from castoff.trainers.configuration.config import Evaluation, Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.batches import loader
from castoff.trainers.data.loaders import Group, Seeded, TrainingLoader, evaluation_loader, training_loader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import seed_all
from tests.cases import others_long
from tests.trainers import warm

CPU = torch.device("cpu")


class Numbers(Dataset[Any]):
    def __init__(self, length: int):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        return index, float(torch.rand(())), random.random()


def training(**given: Any) -> Training:
    return Training(path="", num_epochs=1, batch_size=4, optimizer_type=None, **given)


def samples(groups: Iterable[Group]) -> list[Any]:
    return [sample for group in groups for micro in group.micros for sample in micro.data]


def loaded(world_size: int = 1, rank: int = 0, length: int = 20, **given: Any) -> TrainingLoader:
    return training_loader(Numbers(length), training(**given), RankContext(rank, world_size, CPU), list)


def test_groups() -> None:
    """Micro-batches of each optimizer step, with what they count."""
    loader = loaded(2, 1, 37, gradient_accumulation_steps=2)
    assert (loader.steps, len(loader.dataset)) == (3, 37)
    groups = list(loader.groups(0, 0))
    assert [[micro.samples for micro in group.micros] for group in groups] == [[4, 4], [3, 2], [3, 2]]
    assert [group.samples for group in groups] == [16, 11, 10]
    for group in groups:
        assert [len(micro.data) for micro in group.micros] == [micro.samples for micro in group.micros]
        assert [micro.last for micro in group.micros] == [False, True]
    assert list(loader.groups(0, 1)) == groups[1:]
    assert list(loader.groups(0, 3)) == []
    assert samples(loader.groups(1, 0)) != samples(groups)


def test_what_is_left_out_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    for rank in range(2):
        training_loader(Numbers(9), training(), RankContext(rank, 4, CPU), list)
    assert [record.getMessage()[:46] for record in caplog.records] == []
    for rank in range(2):
        settings = Training(path="", num_epochs=1, batch_size=2, optimizer_type=None)
        training_loader(Numbers(9), settings, RankContext(rank, 2, CPU), list)
    (stated,) = [record.getMessage() for record in caplog.records]
    assert stated.startswith("The last 1 of 9 training samples are left out of each epoch")
    assert (
        "on 2 ranks they make micro-batches of fewer than two samples, on which the model's BatchNorm"
        in stated
    )


def test_why_one_at_a_time_leaves_some_out(caplog: pytest.LogCaptureFixture) -> None:
    settings = Training(path="", num_epochs=1, batch_size=1, optimizer_type=None)
    training_loader(Numbers(9), settings, RankContext(0, 2, CPU), list)
    assert "on 2 ranks they leave some ranks without a sample. Change" in caplog.text


def drawn(workers: int, world_size: int = 1, context: str | None = None, **given: Any) -> dict[int, Any]:
    """What each sample drew, in two epochs."""
    found = {}
    for rank in range(world_size):
        loader = loaded(world_size, rank, num_workers=workers, multiprocessing_context=context, **given)
        for epoch in (0, 1):
            for index, *numbers in samples(loader.groups(epoch, 0)):
                found[epoch * 20 + index] = numbers
    return found


def test_samples_draw_the_same_whoever_loads_them() -> None:
    """Any number of workers, also those that stay for the next epoch, and any number of ranks."""
    here = drawn(0)
    assert len({tuple(numbers) for numbers in here.values()}) == 40
    assert drawn(0, 2) == here
    assert drawn(2) == drawn(2, persistent_workers=True) == here


def test_workers_stay_when_an_epoch_is_left() -> None:
    loader = loaded(num_workers=2, persistent_workers=True)
    whole = samples(loader.groups(1, 0))
    next(loader.groups(0, 0))
    assert samples(loader.groups(1, 0)) == whole


class Noisy(TensorDataset):
    """One of torch's that was made to draw."""

    def __getitem__(self, index: int) -> Any:
        return self.tensors[0][index] + torch.rand(())


@pytest.mark.parametrize("kind", [Noisy, TensorDataset])
def test_samples_of_tensors_are_seeded_if_they_can_draw(kind: type[TensorDataset]) -> None:
    """What only looks up goes without, and leaves the global generator alone."""
    seeded = Seeded(Subset(kind(torch.arange(9.0)), [3, 4, 5]), 0)
    torch.manual_seed(1)
    first = seeded.__getitems__((0, [1, 2]))
    drawn = torch.rand(())
    torch.manual_seed(2)
    assert seeded.__getitems__((0, [1, 2])) == first
    assert (drawn == torch.rand(())) == (kind is Noisy)


@pytest.mark.parametrize("workers", others_long([0, 1], {0}))
def test_a_batch_of_tensors_is_looked_up_at_once(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As default_collate makes it of its samples, to the bit and the stride."""
    whole = TensorDataset(torch.randn(40, 3, 2), torch.randn(5, 40).T, torch.arange(40))
    picked = Subset(Subset(whole, range(10, 30)), list(range(0, 20, 2)))
    for data in (whole, picked):
        settings = training(num_workers=workers)
        loader = training_loader(data, settings, RankContext(0, 1, CPU), default_collate)
        beside = training_loader(data, settings, RankContext(0, 1, CPU), lambda some: default_collate(some))
        wanted = [micro.data for group in beside.groups(0, 0) for micro in group.micros]
        with monkeypatch.context() as patched:
            patched.delattr(TensorDataset, "__getitem__")
            found = [micro.data for group in loader.groups(0, 0) for micro in group.micros]
        for one, other in zip(found, wanted, strict=True):
            assert type(one) is type(other)
            for mine, theirs in zip(one, other, strict=True):
                assert torch.equal(mine, theirs)
                assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())


@pytest.mark.parametrize(
    "odd", [torch.randn(8, 2, 3, 3).to(memory_format=torch.channels_last), nn.Parameter(torch.ones(8, 2))]
)
def test_tensors_that_collate_may_lay_otherwise_go_through_it(odd: Tensor) -> None:
    loaded_by_one = evaluation_loader(
        TensorDataset(odd), Evaluation(batch_size=4), training(), default_collate, rank=0, world_size=1
    )
    (first, *_) = [batch.data for batch in loaded_by_one]
    expected = default_collate([(odd[index],) for index in range(4)])
    assert torch.equal(first[0], expected[0])
    assert first[0].stride() == expected[0].stride()


class Declared(Dataset[Any]):
    """Looks up, and says what it would draw from."""

    def __init__(self, rng_sources: Any):
        self.rng_sources = rng_sources

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [-index for index in indices]


@pytest.mark.parametrize("names", [(), ("torch",), ["random", "numpy"]])
def test_a_data_set_declares_its_generators(names: Any) -> None:
    """The other generators are left alone; where there is none, samples are taken together."""
    seed_all(1)
    Seeded(Subset(Declared(names), [3, 4, 5]), 0).__getitems__((0, [1]))
    after = {"torch": float(torch.rand(())), "random": random.random(), "numpy": numpy.random.random()}
    seed_all(1)
    before = {"torch": float(torch.rand(())), "random": random.random(), "numpy": numpy.random.random()}
    assert {name for name in before if before[name] != after[name]} == set(names)
    assert Seeded(Declared(names), 0).__getitems__((0, [1, 2])) == ([1, 2] if names else [-1, -2])


@pytest.mark.parametrize("wrong", ["torch", ["torhc"]])
def test_generators_that_there_are_not(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"Declared\.rng_sources is .*; it takes some of"):
        Seeded(Declared(wrong), 0)


def test_a_loader_draws_nothing_from_the_global_generator() -> None:
    """The trap of `iter(DataLoader)`: it takes a seed from there."""
    torch.manual_seed(3)
    before = torch.get_rng_state()
    next(loaded(num_workers=1).groups(0, 0))
    assert torch.equal(torch.get_rng_state(), before)


class Slow(Numbers):
    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(0.02)
        return super().__getitem__(index)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("context", others_long(["fork", "spawn", "forkserver"], ["fork"]))
def test_workers_ignore_signals(context: str) -> None:
    """A step takes TERM and USR2 to every process of the rank, from the first moment of its workers on.

    What samples draw is the same in any kind of worker.
    """
    settings = training(num_workers=2, multiprocessing_context=context)
    loader = training_loader(Slow(40), settings, RankContext(0, 1, CPU), list)
    others = own_processes()
    seen = []
    for group in loader.groups(0, 0):
        for child in own_processes() - others:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
                os.kill(child.pid, number)
        seen += group.micros[0].data
    assert seen == samples(loaded(length=40).groups(0, 0))


@pytest.mark.parametrize(
    ("configured", "by_the_program", "used"),
    [
        (None, None, "fork"),
        (None, "forkserver", "fork"),
        (None, "spawn", "spawn"),
        ("forkserver", "spawn", "forkserver"),
    ],
)
def test_workers_are_forked_unless_somebody_says_otherwise(
    configured: str | None, by_the_program: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Python's default is forkserver, whether somebody has used that or not."""
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "spawn", "fork"])
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: by_the_program)
    settings = training(num_workers=1, multiprocessing_context=configured)
    made = loader(Numbers(4), settings, settings)
    assert made.multiprocessing_context.get_start_method() == used


def own_processes() -> set[psutil.Process]:
    """Those below this one, but not the ranks of other tests: whoever began their server is its parent."""
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    children = [child for child in living if warm.__name__ not in child.cmdline()]
    return {one for child in children for one in (child, *child.children(recursive=True))}


class Fate(Numbers):
    """The signal that a process gets when its parent dies, for each sample: PR_GET_PDEATHSIG of prctl(2)."""

    def __getitem__(self, index: int) -> Any:
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))
        return number.value


@pytest.mark.usefixtures("for_real")
def test_workers_of_the_main_thread_die_with_their_rank() -> None:
    """Those of another thread would do so with it."""

    def fates() -> set[int]:
        loader = training_loader(Fate(8), training(num_workers=1), RankContext(0, 1, CPU), list)
        return {fate for group in loader.groups(0, 0) for fate in group.micros[0].data}

    assert fates() == {signal.SIGKILL}
    with ThreadPoolExecutor() as pool:
        assert pool.submit(fates).result() == {0}


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 5))
def test_evaluation_counts_each_sample_once(length: int, size: int, world: int) -> None:
    """Q6: nothing is padded; batches and what they draw are the same on any number of ranks."""
    settings = Evaluation(batch_size=size)

    def batches(rank: int, world_size: int) -> list[tuple[int, tuple[int, ...]]]:
        loader = evaluation_loader(
            Numbers(length), settings, training(), list, rank=rank, world_size=world_size
        )
        found = list(loader)
        assert len(loader) == len(found)
        assert all(len(batch.data) == batch.samples for batch in found)
        return [(batch.seed, tuple(sample[0] for sample in batch.data)) for batch in found]

    alone = batches(0, 1)
    assert [index for _, indices in alone for index in indices] == list(range(length))
    assert sorted(batch for rank in range(world) for batch in batches(rank, world)) == sorted(alone)


def drawn_in_evaluation(size: int, world_size: int = 1, workers: int = 0, batch_size: int = 4) -> Any:
    """What each sample drew, in the second of two validations."""
    settings = Evaluation(batch_size=size, num_workers=workers, persistent_workers=workers > 0)
    trained = Training(path="", num_epochs=1, batch_size=batch_size, optimizer_type=None, seed=7)
    found: dict[int, Any] = {}
    for rank in range(world_size):
        loader = evaluation_loader(Numbers(23), settings, trained, list, rank=rank, world_size=world_size)
        for _ in range(2):
            torch.manual_seed(random.randrange(1000))  # wherever training stands
            found |= {index: numbers for batch in loader for index, *numbers in batch.data}
    return found


def test_samples_draw_the_same_in_each_validation() -> None:
    """Whatever batch they are in, whichever rank and worker loads them, and whatever was trained before."""
    alone = drawn_in_evaluation(23)
    assert sorted(alone) == list(range(23))
    assert len({tuple(numbers) for numbers in alone.values()}) == 23
    for size in (1, 4, 5):
        for world_size in (1, 3):
            assert drawn_in_evaluation(size, world_size) == alone
    assert drawn_in_evaluation(4, batch_size=9) == alone
    assert drawn_in_evaluation(4, 2, workers=2) == alone


def test_an_evaluation_set_needs_a_length() -> None:
    with pytest.raises(ConfigError, match=r"list_iterator has no length .* validation and test sets need"):
        evaluation_loader(iter([]), Evaluation(), training(), list, rank=0, world_size=1)


@pytest.mark.timeout(600)
def test_workers_where_temporary_files_have_long_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets of theirs would have names that are too long, and batches never come."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delitem(vars(multiprocessing.current_process())["_config"], "tempdir", raising=False)
    numbers = TensorDataset(torch.arange(8))
    made = training_loader(numbers, training(num_workers=1), RankContext(0, 1, CPU), default_collate)
    assert [len(micro.data[0]) for group in made.groups(0, 0) for micro in group.micros] == [4, 4]
    assert tempfile.gettempdir() == str(folder) and not list(folder.iterdir())
