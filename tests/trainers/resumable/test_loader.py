"""The position of a loader, on any number of ranks and workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from castoff.trainers import ConfigError, resumable

DATA = TensorDataset(torch.arange(50))


class Ranks:
    """Places for `loader.place`, as a launcher would give them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._patch = monkeypatch

    def batches(
        self, world_size: int, state: dict[str, Any] | None = None, first: int = 99, **more: Any
    ) -> Any:
        """The sets of samples of the first steps of all ranks, and the state after them."""
        steps: list[set[int]] = []
        for rank in range(world_size):
            self._patch.setattr(
                "castoff.trainers.resumable.loader.place", lambda rank=rank: (rank, world_size)
            )
            loader = resumable.Loader(DATA, 12 // world_size, shuffle=True, **more)
            if state is not None:
                loader.load_state_dict(state)
            for number, (batch,) in zip(range(first), loader, strict=False):
                steps += [set()] if number == len(steps) else []
                assert not steps[number] & {*batch.tolist()}
                steps[number] |= {*batch.tolist()}
        return steps, loader.state_dict()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    return Ranks(monkeypatch)


def test_an_epoch_continues_on_other_numbers_of_ranks_and_workers(ranks: Ranks) -> None:
    whole, _ = ranks.batches(1)
    assert sorted(map(len, whole)) == [7, 7, 12, 12, 12] and set.union(*whole) == {*range(50)}
    begun, state = ranks.batches(3, first=2)
    rest, at_the_end = ranks.batches(2, state, num_workers=1)
    assert [*begun, *rest] == whole
    following, _ = ranks.batches(1, at_the_end)
    assert set.union(*following) == {*range(50)} and following != whole


def test_each_iteration_is_an_epoch() -> None:
    loader = resumable.Loader(DATA, 20, shuffle=True)
    assert len(loader) == 3
    first = [batch.tolist() for (batch,) in loader]
    next(iter(loader))  # a look at a batch begins an epoch, as with torch's loader
    assert loader.state_dict() | {"epoch": 1, "consumed": 1} == loader.state_dict()
    assert [batch.tolist() for (batch,) in loader] != first
    again = resumable.Loader(DATA, 20, shuffle=True)
    assert [batch.tolist() for (batch,) in again] == first


def test_a_position_of_another_order_is_refused() -> None:
    loader = resumable.Loader(DATA, 20)
    next(iter(loader))
    other = resumable.Loader(DATA, 10, seed=1)
    with pytest.raises(ConfigError) as refused:
        other.load_state_dict(loader.state_dict())
    assert "batch_size x ranks is 10, but was 20 in the checkpoint" in str(refused.value)
    assert "seed is 1, but was 0" in str(refused.value)


def test_errors_name_the_arguments_of_the_loader() -> None:
    with pytest.raises(ConfigError, match=r"^drop_last: the training set has 50 samples, fewer than one"):
        len(resumable.Loader(DATA, 60, drop_last=True))
    with pytest.raises(ConfigError, match=r"^data: generator has no length and cannot be indexed"):
        len(resumable.Loader((each for each in range(3)), 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batchsize": 4}, r"has no argument batchsize; did you mean batch_size\?"),
        ({"x": 4}, r"has no argument x; it has batch_size, shuffle, num_workers"),
        ({"sampler": None}, r"takes no sampler: .*; leave it out, and write shuffle=True or False"),
        ({"generator": None}, r"takes no generator: .*; write seed=0, say, instead"),
        ({"batch_size": 0}, r"batch_size is 0, but must be an integer from 1 on"),
        ({"batch_size": "4"}, r"batch_size is '4', but must be an integer from 1 on"),
        ({"num_workers": -1}, r"num_workers is -1, but must be an integer from 0 on"),
    ],
)
def test_arguments_that_it_does_not_have(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^resumable\.Loader:? {words}"):
        resumable.Loader(DATA, **options)


def test_the_end_of_an_epoch_takes_another_batch_size() -> None:
    loader = resumable.Loader(DATA, 25)
    list(loader)
    other = resumable.Loader(DATA, 10)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 5
    assert other.state_dict() | {"epoch": 2, "consumed": 0} == other.state_dict()
