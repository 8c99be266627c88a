from __future__ import annotations

import numpy
import pytest
import torch

from castoff.trainers.distributed.randomness import seed_all
from castoff.trainers.sedd.alphabet import PADDING, decode
from castoff.trainers.sedd.data import MULTIPLE, Protein, Proteins, collated
from castoff.trainers.sedd.synthetic import LENGTHS, SyntheticProteins


def test_made_up_proteins_are_functions_of_seed_and_index() -> None:
    proteins, others = SyntheticProteins(50), SyntheticProteins(50, seed=1)
    assert proteins[7].tolist() == SyntheticProteins(8)[7].tolist()
    assert proteins[7].tolist() != others[7].tolist()
    assert {len(proteins[index]) for index in range(50)} <= set(LENGTHS)
    assert all(decode(proteins[index]).startswith("M") for index in range(50))
    with pytest.raises(IndexError):
        proteins[50]


def test_of_a_long_protein_a_window_is_taken() -> None:
    class Long:
        digest = "long"

        def length_of(self, index: int) -> int:
            return 20

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> numpy.typing.NDArray[numpy.uint8]:
            return numpy.arange(20, dtype=numpy.uint8)

    proteins, firsts = Proteins(Long(), max_length=8), set()
    for seed in range(200):
        seed_all(seed)
        tokens, time, noise = proteins[0]
        assert tokens.dtype == torch.uint8 and len(tokens) == len(noise) == 8
        assert tokens.tolist() == list(range(int(tokens[0]), int(tokens[0]) + 8))
        assert 0 <= float(time) < 1
        firsts.add(int(tokens[0]))
    assert firsts == set(range(13))


def test_noise_follows_from_the_stream_alone() -> None:
    proteins = Proteins(SyntheticProteins(3), max_length=512)
    seed_all(5)
    first = proteins[1]
    seed_all(5)
    again = proteins[1]
    assert first.time == again.time and first.noise.equal(again.noise)
    assert len({float(first.time), *first.noise.tolist()}) == 1 + len(first.tokens), "each has its own"


def test_a_batch_is_padded_to_a_round_length() -> None:
    proteins = Proteins(SyntheticProteins(30), max_length=100)
    samples = [proteins[index] for index in range(30)]
    batch = collated(samples[:3], 100)
    assert batch.tokens.dtype == torch.int64 and batch.padded
    longest = max(len(each.tokens) for each in samples[:3])
    assert batch.tokens.shape == batch.noise.shape
    assert batch.tokens.shape[1] % MULTIPLE == 0 or batch.tokens.shape[1] == 100
    assert batch.tokens.shape[1] >= longest
    for row, noise, each in zip(batch.tokens, batch.noise, samples, strict=False):
        length = len(each.tokens)
        assert row[:length].tolist() == each.tokens.tolist() and set(row[length:].tolist()) <= {PADDING}
        assert noise[:length].equal(each.noise)


def test_a_batch_of_proteins_of_one_length_may_be_padded_too() -> None:
    samples = [Protein(torch.zeros(40, dtype=torch.uint8), torch.rand(()), torch.rand(40))] * 2
    batch = collated(samples, 512)
    assert batch.tokens.shape == (2, 64) and batch.padded


def test_a_batch_of_whole_ones_is_not_padded() -> None:
    long = [each for index in range(30) if len(each := SyntheticProteins(30)[index]) >= 64]
    proteins = Proteins(long, max_length=64)  # type: ignore[arg-type]  # a list has no digest
    batch = collated([proteins[0], proteins[1]], 64)
    assert batch.tokens.shape == (2, 64) and not batch.padded
