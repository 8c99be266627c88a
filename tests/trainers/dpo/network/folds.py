"""Backbones for tests: chains that wander at random, as closely packed as those of proteins."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from castoff.trainers.dpo.samples.batch import Backbones


def wandering(*lengths: int, seed: int = 0, unresolved: Sequence[int] = ()) -> Backbones:
    """One structure, with chains of these lengths; some residues have no place."""
    dice = torch.Generator().manual_seed(seed)
    length = sum(lengths)
    steps = torch.randn(length, 3, generator=dice) * 2.2
    atoms = steps.cumsum(0)[:, None] + torch.randn(length, 4, 3, generator=dice)
    resolved = torch.ones(length, dtype=torch.bool)
    resolved[list(unresolved)] = False
    atoms[~resolved] = 0
    chains = torch.cat([torch.full((each,), number) for number, each in enumerate(lengths)])
    positions = torch.cat([torch.arange(each) for each in lengths])
    return Backbones(atoms[None], resolved[None], chains[None], positions[None])


def side_by_side(*structures: Backbones) -> Backbones:
    """One batch of them, the shorter ones padded."""
    longest = max(structure.resolved.shape[1] for structure in structures)
    return Backbones(
        *(torch.cat([padded(each, longest) for each in parts]) for parts in zip(*structures, strict=True))
    )


def padded(values: Tensor, length: int) -> Tensor:
    """(1, shorter, …) to (1, length, …), with zeros."""
    more = values.new_zeros(1, length - values.shape[1], *values.shape[2:])
    return torch.cat([values, more], dim=1)


def letters(sequences: int, length: int, seed: int = 0) -> Tensor:
    """Random sequences (1, sequences, length)."""
    return torch.randint(21, (1, sequences, length), generator=torch.Generator().manual_seed(seed))


def shuffled(length: int, seed: int = 0) -> Tensor:
    """A random order (1, length)."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))[None]
