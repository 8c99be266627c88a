"""Generated proteins compared with those of the training set: lengths, residues, pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy
import numpy.typing

from castoff.trainers.sedd.alphabet import RESIDUES, Tokens

Counts: TypeAlias = "numpy.typing.NDArray[numpy.int64]"

_KINDS = len(RESIDUES)


def metrics(generated: Sequence[Tokens], residues: Counts, pairs: Counts) -> dict[str, float]:
    """Metrics of at least one generated protein, compared with the data's counts of residues and neighbour
    pairs.

    `generated`: the tokens of each protein, without padding; `residues`: (20,); `pairs`: (20, 20). The
    metrics:

    - `avg_length`: residues of a protein,
    - `distinct`: the share of different proteins among those generated,
    - `aa_freq_A` …: the share of each amino acid,
    - `residue_distance`, `pair_distance`: total variation between the shares of residues, or of pairs, and
      the data's, from 0 to 1; `expected_distance` is its value by chance.
    """
    of_residues, of_pairs = residue_counts(generated), pair_counts(generated)
    shares = of_residues / max(of_residues.sum(), 1)
    return {
        "avg_length": sum(map(len, generated)) / len(generated),
        "distinct": len({protein.tobytes() for protein in generated}) / len(generated),
        "residue_distance": total_variation(of_residues, residues),
        "pair_distance": total_variation(of_pairs, pairs),
        **{f"aa_freq_{letter}": float(share) for letter, share in zip(RESIDUES, shares, strict=True)},
    }


def residue_counts(proteins: Iterable[Tokens]) -> Counts:
    """How often each amino acid occurs in the proteins, (20,)."""
    total = numpy.zeros(_KINDS, dtype=numpy.int64)
    for tokens in proteins:
        total += numpy.bincount(tokens[tokens < _KINDS], minlength=_KINDS)
    return total


def pair_counts(proteins: Iterable[Tokens]) -> Counts:
    """How often each amino acid (row) precedes each (column), (20, 20); pairs with other tokens are
    left out.
    """
    total = numpy.zeros(_KINDS * _KINDS, dtype=numpy.int64)
    for tokens in proteins:
        first, second = tokens[:-1].astype(numpy.int64), tokens[1:].astype(numpy.int64)
        known = (first < _KINDS) & (second < _KINDS)
        total += numpy.bincount((first * _KINDS + second)[known], minlength=_KINDS * _KINDS)
    return total.reshape(_KINDS, _KINDS)


def total_variation(ours: Counts, theirs: Counts) -> float:
    """Half the sum of the differences of shares: 0 if all are equal, 1 if nothing occurs in both.

    nan if either has no counts.
    """
    if not ours.sum() or not theirs.sum():
        return float("nan")
    return float(numpy.abs(ours / ours.sum() - theirs / theirs.sum()).sum() / 2)


def expected_distance(counts: Counts, number: int) -> float:
    """The mean total variation between the counts' shares and those of `number` independent draws from them.

    Each deviation is approximated by a normal distribution's mean deviation. Neighbours in a protein are not
    independent, so real proteins deviate somewhat more.
    """
    shares = counts / counts.sum()
    return float(numpy.sqrt(2 * shares * (1 - shares) / (numpy.pi * number)).sum() / 2)
