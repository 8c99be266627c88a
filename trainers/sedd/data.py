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
    """A set of proteins: a store, or synthetic ones."""

    def __len__(self) -> int:
        """The number of proteins."""

    def __getitem__(self, index: int) -> Tokens:
        """The tokens of a protein."""

    def length_of(self, index: int) -> int:
        """The number of residues of a protein."""

    @property
    def digest(self) -> str:
        """A text that identifies the proteins."""


class Protein(NamedTuple):
    """A protein, and the random numbers that decide its noise, drawn from a stream for this sample alone.

    The numbers are the same on any number of ranks, in any batch, on any device. What is computed from them
    can still differ between devices, which round differently.
    """

    tokens: Tensor
    """(length,), uint8."""
    time: Tensor
    """A uniform number in [0, 1), from which the protein's time in the diffusion follows."""
    noise: Tensor
    """(length,): a uniform number for each token."""


class ProteinBatch(NamedTuple):
    """Proteins as a batch, padded to one length."""

    tokens: Tensor
    """(batch, longest), int64; PADDING after the shorter proteins."""
    time: Tensor
    """The proteins' uniform numbers, (batch,)."""
    noise: Tensor
    """(batch, longest); 0 where there is PADDING."""
    padded: bool
    """Whether there is any PADDING."""


class Proteins(Dataset[Protein]):
    """The samples of a source. A protein longer than `max_length` is cut to a window, a different one in each
    epoch.
    """

    rng_sources = ("torch",)

    def __init__(self, source: Source, max_length: int):
        self.source = source
        self.max_length = max_length

    def __len__(self) -> int:
        """The number of proteins."""
        return len(self.source)

    def __getitem__(self, index: int) -> Protein:
        """One sample; draws from torch's global generator."""
        return sample(self.source[index], self.max_length)


def sample(tokens: Tokens, max_length: int) -> Protein:
    """Make a sample of a protein: its window and the numbers for its noise, from torch's global generator."""
    time = torch.rand(())
    if len(tokens) > max_length:
        first = int(torch.randint(len(tokens) - max_length + 1, ()))
        tokens = tokens[first : first + max_length]
    return Protein(torch.from_numpy(numpy.array(tokens)), time, torch.rand(len(tokens)))


MULTIPLE = 32
"""Batches are as long as their longest protein, rounded up to a multiple of this: fewer different shapes."""


def collated(proteins: Sequence[Protein], max_length: int) -> ProteinBatch:
    """Pad proteins of at most `max_length` residues to a batch."""
    lengths = [len(protein.tokens) for protein in proteins]
    longest = min(-(-max(lengths) // MULTIPLE) * MULTIPLE, max_length)
    tokens = pad_sequence([protein.tokens for protein in proteins], batch_first=True, padding_value=PADDING)
    noise = pad_sequence([protein.noise for protein in proteins], batch_first=True)
    missing: Any = (0, longest - tokens.shape[1])
    return ProteinBatch(
        torch.nn.functional.pad(tokens.long(), missing, value=PADDING),
        torch.stack([protein.time for protein in proteins]),
        torch.nn.functional.pad(noise, missing),
        padded=min(lengths) < longest,
    )
