"""Proteins as samples: tokens, and the uniform numbers for their noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from castoff.trainers.sedd.alphabet import PADDING, Tokens


class Source(Protocol):
    """Where proteins come from: a store, or made-up ones."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, index: int) -> Tokens:
        """The tokens of one."""

    def length_of(self, index: int) -> int:
        """How many residues one has."""

    @property
    def digest(self) -> str:
        """A word that only the same proteins have."""


class Protein(NamedTuple):
    """A sample. What noise does to it follows from its own stream of random numbers.

    So these are the same numbers on any number of ranks, in any batch, on any device. What is then
    computed from them can still differ between devices, which round differently.
    """

    tokens: Tensor
    """(length,), uint8."""
    time: Tensor
    """A uniform number in [0, 1), from which its time follows."""
    noise: Tensor
    """(length,): a uniform number for each token."""


class ProteinBatch(NamedTuple):
    """Proteins side by side."""

    tokens: Tensor
    """(batch, longest), int64; PADDING behind the shorter ones."""
    time: Tensor
    """(batch,)."""
    noise: Tensor
    """(batch, longest)."""
    padded: bool
    """Whether there is any PADDING."""


class Proteins(Dataset[Protein]):
    """Samples of a source; of a protein longer than `max_length` a window, another one in each epoch."""

    rng_sources = ("torch",)

    def __init__(self, source: Source, max_length: int):
        self.source = source
        self.max_length = max_length

    def __len__(self) -> int:
        """How many proteins."""
        return len(self.source)

    def __getitem__(self, index: int) -> Protein:
        """One protein; draws from torch's global generator."""
        return sample(self.source[index], self.max_length)


def sample(tokens: Tokens, max_length: int) -> Protein:
    """A protein with its noise; draws from torch's global generator."""
    time = torch.rand(())
    if len(tokens) > max_length:
        first = int(torch.randint(len(tokens) - max_length + 1, ()))
        tokens = tokens[first : first + max_length]
    return Protein(torch.from_numpy(numpy.array(tokens)), time, torch.rand(len(tokens)))


MULTIPLE = 32
"""Batches are as long as their longest protein, up to a multiple of this: few shapes, and round ones."""


def collated(proteins: Sequence[Protein], max_length: int) -> ProteinBatch:
    """Proteins of at most `max_length` residues as a batch."""
    lengths = [len(protein.tokens) for protein in proteins]
    longest = min(-(-max(lengths) // MULTIPLE) * MULTIPLE, max_length)
    tokens = pad_sequence([each.tokens for each in proteins], batch_first=True, padding_value=PADDING)
    noise = pad_sequence([each.noise for each in proteins], batch_first=True)
    more: Any = (0, longest - tokens.shape[1])
    return ProteinBatch(
        torch.nn.functional.pad(tokens.long(), more, value=PADDING),
        torch.stack([each.time for each in proteins]),
        torch.nn.functional.pad(noise, more),
        padded=min(lengths) < longest,
    )
