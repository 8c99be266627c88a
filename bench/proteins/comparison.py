"""A model and simpler ones on held-out proteins, under the same noise: by how much its bound is lower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy
import numpy.typing
import torch
from torch import Tensor, nn

from bench.proteins.baselines import Trigrams, unigram_score
from castoff.trainers.sedd.alphabet import RESIDUES, Tokens
from castoff.trainers.sedd.data import Protein, ProteinBatch, collated
from castoff.trainers.sedd.graph import GraphOfStates
from castoff.trainers.sedd.loss import Score, diffusion_loss, times, under_noise
from castoff.trainers.sedd.noise import Noise

Numbers: TypeAlias = "numpy.typing.NDArray[numpy.float64]"

BATCH = 32


class Part(NamedTuple):
    """Of a held-out protein."""

    tokens: Tokens
    unigram: float
    """Nats of its residues, each by itself."""
    trigram: float
    """The same after the two before each, be they in the part or before it in the protein."""
    cluster: int


class Mean(NamedTuple):
    """Over residues, with the standard error that it has because other clusters could have been drawn."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.4f}"


class Found(NamedTuple):
    """Sums over the residues of each part, in nats, under noise that all models see alike."""

    model: Numbers
    unigram: Numbers
    exact_unigram: Numbers
    """Not under noise, but of all residues."""
    exact_trigram: Numbers
    """The same."""
    residues: Numbers
    clusters: list[int]

    def over_unigram(self) -> Mean:
        """How far the model is above the unigram, under the same noise."""
        return self.mean(self.model - self.unigram)

    def over_trigram(self, masked: float) -> Mean:
        """How far the model is above the trigram, of which a share `masked` counts, as at time 1 there is.

        The unigram is known with and without noise, so what noise adds to it is taken from the model, too.
        """
        luck = self.unigram - masked * self.exact_unigram
        return self.mean(self.model - luck - masked * self.exact_trigram)

    def mean(self, sums: Numbers) -> Mean:
        """Of a residue."""
        return mean_of(sums, self.residues, self.clusters)


def parts_of(
    proteins: Sequence[Tokens],
    clusters: Sequence[int],
    shares: Numbers,
    trigrams: Trigrams,
    longest: int,
) -> list[Part]:
    """Each protein in as few parts, of about the same length, as make none longer than that."""
    found = []
    for tokens, cluster in zip(proteins, clusters, strict=True):
        known = tokens < len(RESIDUES)
        nats = numpy.zeros((len(tokens), 2))
        nats[known, 0] = -numpy.log(shares[tokens[known]])
        nats[known, 1] = trigrams.nats(tokens)
        number = -(-len(tokens) // longest)
        cut = zip(numpy.array_split(tokens, number), numpy.array_split(nats, number), strict=True)
        found += [Part(part, float(each[:, 0].sum()), float(each[:, 1].sum()), cluster) for part, each in cut]
    return found


def compared(
    model: nn.Module,
    shares: Numbers,
    graph: GraphOfStates,
    noise: Noise,
    parts: Sequence[Part],
    *,
    draws: int,
    seed: int = 0,
) -> Found:
    """Each part under noise at so many times, one in each of as many equal parts of 0 to 1."""
    ordered = sorted(parts, key=lambda part: len(part.tokens))
    model.eval()
    model_sums, unigram_sums = numpy.zeros(len(ordered)), numpy.zeros(len(ordered))
    for draw in range(draws):
        batches = _batches(ordered, draw, draws, torch.Generator().manual_seed(seed + draw))
        for where, batch in zip(range(0, len(ordered), BATCH), batches, strict=True):
            scores = [_score(model, batch), unigram_score(shares)]
            ours, others = losses(scores, graph, noise, batch)
            model_sums[where : where + BATCH] += ours.numpy() / draws
            unigram_sums[where : where + BATCH] += others.numpy() / draws
    return Found(
        model_sums,
        unigram_sums,
        numpy.array([part.unigram for part in ordered]),
        numpy.array([part.trigram for part in ordered]),
        numpy.array([float((part.tokens < len(RESIDUES)).sum()) for part in ordered]),
        [part.cluster for part in ordered],
    )


def _batches(
    parts: Sequence[Part], draw: int, draws: int, generator: torch.Generator
) -> Iterator[ProteinBatch]:
    for first in range(0, len(parts), BATCH):
        tokens = [torch.from_numpy(part.tokens.copy()) for part in parts[first : first + BATCH]]
        samples = [
            Protein(
                each,
                (draw + torch.rand((), generator=generator)) / draws,
                torch.rand(len(each), generator=generator),
            )
            for each in tokens
        ]
        yield collated(samples, max(map(len, tokens)))


def _score(model: nn.Module, batch: ProteinBatch) -> Score:
    return lambda tokens, sigma: model(tokens, sigma, batch.padded)


@torch.no_grad()
def losses(scores: Iterable[Score], graph: GraphOfStates, noise: Noise, batch: ProteinBatch) -> list[Tensor]:
    """For each of the scores the loss of each protein, a sum over residues, under the batch's noise."""
    time = times(batch.time)
    met = [under_noise(score, graph, batch.tokens, noise.total(time), batch.noise) for score in scores]
    each = [diffusion_loss(graph, noise, batch.tokens, time, one) for one in met]
    return [of_positions.double().sum(-1) for of_positions in each]


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
