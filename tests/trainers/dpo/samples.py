"""Made-up samples: pairs of sequences for backbones of a few residues."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.data import Dataset

from trainers.dpo.alphabet import KINDS
from trainers.dpo.batch import Backbones, Batch, Sample
from trainers.dpo.model import InverseFolding

SIZES = {"hidden_size": 8, "encoder_layers": 1, "decoder_layers": 1, "neighbours": 6}


class MadePairs(Dataset[Sample]):
    """Of so many structures; the seed of the orders of decoding is one of its own."""

    draws_from = ()

    def __init__(self, number: int, *, shift: float = 0.0, orders: int = 0):
        self.shift = shift
        self.orders = orders
        self.lengths = [7 + 3 * index % 8 for index in range(number)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        length = self.lengths[index]
        steps = torch.randn(length, 1, 3, generator=generator)
        atoms = 2 * steps.cumsum(0) + torch.randn(length, 4, 3, generator=generator)
        atoms[0, 0, 0] += self.shift
        resolved = torch.ones(length, dtype=torch.bool)
        resolved[2] = False
        designed = resolved & (torch.arange(length) % 5 != 4)
        order = torch.randperm(length, generator=torch.Generator().manual_seed(self.orders * 1000 + index))
        return Sample(
            *(atoms * resolved[:, None, None], resolved, torch.zeros(length).long(), torch.arange(length)),
            *(torch.randint(KINDS - 1, (2, length), generator=generator), designed, order, torch.zeros(2)),
        )


def side_by_side(samples: Sequence[Sample]) -> Batch:
    longest = max(len(each.resolved) for each in samples)

    def padded(name: str, value: float = 0) -> torch.Tensor:
        parts = [getattr(each, name) for each in samples]
        if name == "sequences":
            return torch.stack(
                [torch.nn.functional.pad(part, (0, longest - part.shape[1])) for part in parts]
            )
        fill = [torch.full((longest - len(part), *part.shape[1:]), value, dtype=part.dtype) for part in parts]
        return torch.stack([torch.cat(each) for each in zip(parts, fill, strict=True)])

    return Batch(
        Backbones(*(padded(name) for name in ("atoms", "resolved", "chains", "positions"))),
        *(padded("sequences"), padded("designed"), padded("order", 10_000)),
        torch.stack([each.reference for each in samples]),
    )


def network(seed: int = 0) -> InverseFolding:
    torch.manual_seed(seed)
    return InverseFolding(**SIZES, dropout=0.0)
