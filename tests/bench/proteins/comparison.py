"""A model and a simpler one under the same noise: by how much the one's bound is below the other's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy
import numpy.typing
import torch
from torch import Tensor

from trainers.sedd.data import ProteinBatch
from trainers.sedd.graph import GraphOfStates
from trainers.sedd.loss import Score, diffusion_loss, times, under_noise
from trainers.sedd.noise import Noise


class Mean(NamedTuple):
    """A mean over residues, with the error it has because other clusters could have been drawn."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.4f}"


def mean_of(sums: numpy.typing.ArrayLike, residues: numpy.typing.ArrayLike, clusters: Sequence[int]) -> Mean:
    """Sums of proteins over their residues: the mean of a residue, and its standard error.

    Proteins of one cluster are alike, so the error is that of a ratio of sums over whole clusters
    (Cochran, Sampling Techniques, section 6.4).
    """
    total, size = numpy.asarray(sums, dtype=float), numpy.asarray(residues, dtype=float)
    value = total.sum() / size.sum()
    _, where = numpy.unique(numpy.asarray(clusters), return_inverse=True)
    off = numpy.bincount(where, weights=total - value * size)
    groups = len(off)
    error = numpy.sqrt((off**2).sum() * groups / (groups - 1)) / size.sum()
    return Mean(float(value), float(error))


@torch.no_grad()
def losses(scores: Iterable[Score], graph: GraphOfStates, noise: Noise, batch: ProteinBatch) -> list[Tensor]:
    """For each of the scores the loss of each protein, a sum over residues, under the batch's noise."""
    time = times(batch.time)
    met = [under_noise(score, graph, batch.tokens, noise.total(time), batch.noise) for score in scores]
    each = [diffusion_loss(graph, noise, batch.tokens, time, one) for one in met]
    return [of_positions.double().sum(-1) for of_positions in each]
