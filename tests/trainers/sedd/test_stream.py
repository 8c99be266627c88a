"""A stream gives each protein of its blocks once, in an order of its own, and resumes exactly."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from castoff.trainers.configuration.config import Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import training_loader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.data import Protein, collated
from castoff.trainers.sedd.store.token_store import TokenStore
from castoff.trainers.sedd.stream import ProteinStream, _InBlocks, split_into_blocks
from tests.trainers.sedd.stores import store_with

NUMBER = 103


def letters(number: int) -> str:
    """A protein that tells its number."""
    return "ACDEFGHIKL"[number // 100] + "ACDEFGHIKL"[number // 10 % 10] + "ACDEFGHIKL"[number % 10]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return store_with(tmp_path_factory.mktemp("store"), [letters(number) for number in range(NUMBER)])


def numbers(samples: Any) -> list[int]:
    return [
        int("".join(str("ACDEFGHIKL".index(letter)) for letter in decode(each.tokens))) for each in samples
    ]


def stream(store: TokenStore, *, block: int = 4, mixed: int = 3, max_length: int = 512) -> ProteinStream:
    return ProteinStream(store, max_length, range(-(-NUMBER // block)), block=block, mixed=mixed)


def test_gives_each_protein_once_in_another_order_each_time(store: TokenStore) -> None:
    torch.manual_seed(0)
    stream_ = stream(store)
    first, second = numbers(stream_), numbers(stream_)
    assert sorted(first) == sorted(second) == list(range(NUMBER))
    assert first != second
    torch.manual_seed(0)
    assert numbers(stream(store)) == first


def test_other_blocks_are_mixed_each_time(store: TokenStore) -> None:
    torch.manual_seed(0)
    one = stream(store, block=4, mixed=1)
    first, second = ([number // 4 for number in numbers(one)] for _ in range(2))
    assert first != second
    assert sum(a == b for a, b in zip(first, second, strict=True)) < NUMBER / 3


def test_neighbours_are_mixed_with_others(store: TokenStore) -> None:
    torch.manual_seed(0)
    order = numbers(stream(store, block=4, mixed=5))
    assert sum(abs(one - other) == 1 for one, other in pairwise(order)) < NUMBER / 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(block=some.integers(1, 40), mixed=some.integers(1, 9), shards=some.integers(1, 6))
def test_shards_share_the_proteins_out(block: int, mixed: int, shards: int, store: TokenStore) -> None:
    given: list[int] = []
    for index in range(shards):
        torch.manual_seed(3)
        given += numbers(stream(store, block=block, mixed=mixed).shard(num_shards=shards, index=index))
    assert sorted(given) == list(range(NUMBER))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(taken=some.integers(0, NUMBER), block=some.integers(1, 40), mixed=some.integers(1, 9))
def test_a_stream_resumes_where_it_was(taken: int, block: int, mixed: int, store: TokenStore) -> None:
    torch.manual_seed(3)
    one = stream(store, block=block, mixed=mixed)
    samples = iter(one)
    first = numbers(islice(samples, taken))
    state = pickle.loads(pickle.dumps(one.state_dict()))
    torch.manual_seed(4)
    other = stream(store, block=block, mixed=mixed)
    other.load_state_dict(state)
    assert numbers(other) == numbers(samples)
    assert taken == 0 or sorted(first + numbers(iter_again(one, state))) == list(range(NUMBER))


def iter_again(one: ProteinStream, state: dict[str, Any]) -> ProteinStream:
    one.load_state_dict(state)
    return one


def test_samples_are_those_of_the_set_with_a_length(store: TokenStore) -> None:
    """A window of a long protein, and noise, drawn from torch when the sample is asked for."""
    torch.manual_seed(0)
    samples = iter(stream(store, max_length=2))
    torch.manual_seed(1)
    one = next(samples)
    torch.manual_seed(1)
    time = torch.rand(())
    assert (one.time, len(one.tokens), one.noise.shape) == (time, 2, (2,))


def taken(loader: Any, epoch: int, consumed: int, steps: int | None = None) -> list[tuple[list[int], float]]:
    return [
        (numbers_of(micro.data), float(micro.data.noise.sum()))
        for group in islice(loader.groups(epoch, consumed), steps)
        for micro in group.micros
    ]


def numbers_of(batch: Any) -> list[int]:
    return [numbers([Protein(row[:3], row, row)])[0] for row in batch.tokens]


def loader_of(store: TokenStore, workers: int = 0) -> Any:
    training = Training(
        path="unused", num_epochs=1, batch_size=5, optimizer_type="AdamW", num_workers=workers, seed=7
    )
    context = RankContext(0, 1, torch.device("cpu"))
    return training_loader(stream(store), training, context, lambda samples: collated(samples, 512))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_training_resumes_with_the_same_samples_and_noise(workers: int, store: TokenStore) -> None:
    whole = taken(loader_of(store, workers), 0, 0)
    assert_nearly_all(whole, workers)
    before = loader_of(store, workers)
    assert taken(before, 0, 0, 9) == whole[:9]
    after = loader_of(store, workers)
    after.load_state_dict(before.state_dict())
    assert taken(after, 0, 9) == whole[9:]
    again = taken(after, 1, 0)
    assert_nearly_all(again, workers)
    assert again != whole


def assert_nearly_all(batches: list[tuple[list[int], float]], workers: int) -> None:
    """Each once; a worker's last batch is left out where it would be of one protein."""
    given = [number for batch, _ in batches for number in batch]
    assert len(given) == len(set(given)) >= NUMBER - workers


# --- Splits -------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
@given(
    shares=some.sampled_from([(0.5, 0.25, 0.25), (0.2, 0.2, 0.6), (1.0, 0.0, 0.0), (0.5, 0.1, 0.0)]),
    seed=some.integers(0, 99),
    least=some.sampled_from([1, 10, 100]),
)
def test_parts_are_whole_blocks_without_overlap(
    shares: tuple[float, float, float], seed: int, least: int, store: TokenStore
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("castoff.trainers.sedd.stream._LEAST_BLOCKS", least)
        stream_, others = split_into_blocks(store, 512, shares, seed)
        parts = [numbers(stream_), *([*numbers(each[n] for n in range(len(each)))] for each in others)]
    once = Counter(number for part in parts for number in part)
    assert set(once.values()) <= {1}
    if sum(shares) == 1:
        assert sorted(once) == list(range(NUMBER))
    for part, share in zip(parts, shares, strict=True):
        assert abs(len(part) - share * NUMBER) <= 2 * NUMBER / least + 2


def test_a_share_of_held_out_proteins_takes_no_memory(store: TokenStore) -> None:
    _, (held_out, _) = split_into_blocks(store, 512, (0.5, 0.5, 0.0), 1)
    whole = list(held_out.indices)
    for part in (slice(None), slice(3, 9), slice(None, -2), slice(0, 0)):
        assert list(held_out.indices[part]) == whole[part]
    assert held_out.indices[-1] == whole[-1]
    with pytest.raises(IndexError):
        held_out.indices[len(whole)]
    many = _InBlocks(range(60_000_000 // 512), 512, 60_000_000)
    assert len(pickle.dumps(many[:50_000_000])) < 1000


def test_another_seed_holds_out_others(store: TokenStore) -> None:
    held_out = []
    for seed in (0, 0, 1):
        _, others = split_into_blocks(store, 512, (0.5, 0.5), seed)
        held_out.append(numbers(others[0][place] for place in range(len(others[0]))))
    assert held_out[0] == held_out[1] != held_out[2]


def test_shares_that_are_none_are_reported(store: TokenStore) -> None:
    with pytest.raises(ConfigError, match=r"data\.split"):
        split_into_blocks(store, 512, (0.9, 0.9, 0.0), 0)
