"""What counting residues says of proteins: each by itself, or after the one or two before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy
import numpy.typing
import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK, RESIDUES, UNKNOWN, Tokens
from castoff.trainers.sedd.loss import Score
from castoff.trainers.sedd.statistics import residue_counts

Numbers: TypeAlias = "numpy.typing.NDArray[numpy.float64]"

CONTEXTS = UNKNOWN + 2
"""What may stand before a residue: a residue, something unknown, or the protein's beginning."""
BEGINNING = CONTEXTS - 1
STRENGTHS = [4.0**power for power in range(8)]
"""Of which what was kept back chooses: the weight of the shorter context, in residues seen."""


class Trigrams(NamedTuple):
    """Probabilities of a residue after two others, mixed with those after one, and of all residues."""

    probabilities: Numbers
    """(before the last, last, residue)."""
    strengths: tuple[float, float]
    """Of the single residues behind the pairs, and of the pairs behind the triples."""

    def nats(self, protein: Tokens) -> Numbers:
        """The negative logarithm of each residue's probability; what is unknown is left out."""
        before, last, now = _triples(protein)
        return -numpy.log(self.probabilities[before, last, now])


def unigram(proteins: Sequence[Tokens]) -> Numbers:
    """The share of each residue, as if each stood once more than it does: none is impossible."""
    counts = residue_counts(proteins) + 1
    shares: Numbers = counts / counts.sum()
    return shares


def trigrams(proteins: Sequence[Tokens]) -> Trigrams:
    """Of training proteins. How much the shorter contexts weigh is chosen on every tenth of them."""
    kept_back = _counts(proteins[::10])
    everything = _counts(proteins)
    tried = [(single, pair) for single in STRENGTHS for pair in STRENGTHS]

    def nats(strengths: tuple[float, float]) -> float:
        return float(-(kept_back * numpy.log(_smoothed(everything - kept_back, strengths))).sum())

    best = min(tried, key=nats)
    return Trigrams(_smoothed(everything, best), best)


def unigram_score(shares: Numbers) -> Score:
    """The score of the absorbing graph that knows no more than how often each residue stands.

    A residue that is masked at total noise sigma was x with probability q(x), so the score of x is
    q(x) / (exp(sigma) - 1): at rate sigma' a masked residue x loses -log q(x) sigma' / (exp(sigma) - 1).
    """
    logarithms = torch.from_numpy(numpy.log(shares))

    def score(noisy: Tensor, sigma: Tensor) -> Tensor:
        scaled = logarithms - torch.log(torch.expm1(sigma.double()))[:, None, None]
        return scaled.expand(*noisy.shape, MASK)

    return score


def _smoothed(counts: Numbers, strengths: tuple[float, float]) -> Numbers:
    """Each context's counts, with the shorter context's probabilities as so many residues more (MacKay
    and Peto, Natural Language Engineering 1, 1995)."""
    single, pair = strengths
    pairs = counts.sum(0)
    residues = (pairs.sum(0) + 1) / (pairs.sum() + len(RESIDUES))
    after_one = (pairs + single * residues) / (pairs.sum(-1, keepdims=True) + single)
    mixed: Numbers = (counts + pair * after_one) / (counts.sum(-1, keepdims=True) + pair)
    return mixed


def _counts(proteins: Sequence[Tokens]) -> Numbers:
    shape = (CONTEXTS, CONTEXTS, len(RESIDUES))
    counted = numpy.zeros(shape)
    for protein in proteins:
        numpy.add.at(counted, _triples(protein), 1.0)
    return counted


def _triples(protein: Tokens) -> tuple[Tokens, Tokens, Tokens]:
    """Each residue with the two tokens before it."""
    known = protein < len(RESIDUES)
    led = numpy.concatenate([numpy.array([BEGINNING, BEGINNING], dtype=protein.dtype), protein])
    return led[:-2][known], led[1:-1][known], protein[known]
