"""Statistics of generated proteins."""

from __future__ import annotations

import numpy
import pytest

from castoff.trainers.sedd.alphabet import RESIDUES, Tokens, encode
from castoff.trainers.sedd.statistics import (
    expected_distance,
    metrics,
    pair_counts,
    residue_counts,
    total_variation,
)
from castoff.trainers.sedd.synthetic import SyntheticProteins


def of(*sequences: str) -> list[Tokens]:
    return [encode(sequence.encode()) for sequence in sequences]


def test_residues_and_pairs_are_counted_within_proteins_and_without_what_is_unknown() -> None:
    proteins = of("ACA", "AXCA", "Y", "")
    residues, pairs = residue_counts(proteins), pair_counts(proteins)
    a, c, y = (RESIDUES.index(letter) for letter in "ACY")
    assert residues[[a, c, y]].tolist() == [4, 2, 1] and residues.sum() == 7
    assert pairs[a, c] == 1 and pairs[c, a] == 2 and pairs.sum() == 3


def test_total_variation_is_half_of_what_shares_differ() -> None:
    ours = numpy.array([3, 1, 0])
    assert total_variation(ours, 7 * ours) == 0
    assert total_variation(ours, numpy.array([0, 0, 5])) == 1
    assert total_variation(ours, numpy.array([1, 1, 2])) == pytest.approx(0.5)
    assert numpy.isnan(total_variation(ours, numpy.zeros(3, dtype=int)))


def test_generated_proteins_are_reported_by_the_names_that_people_plot() -> None:
    data = of("ACAC", "AACC")
    given = metrics(of("AAC", "AAC", "C"), residue_counts(data), pair_counts(data))
    assert set(given) == {
        *("avg_length", "distinct", "residue_distance", "pair_distance"),
        *(f"aa_freq_{letter}" for letter in RESIDUES),
    }
    assert given["avg_length"] == pytest.approx(7 / 3)
    assert given["distinct"] == pytest.approx(2 / 3)
    assert given["aa_freq_A"] == pytest.approx(4 / 7) and given["aa_freq_Y"] == 0
    assert given["residue_distance"] == pytest.approx(1 / 14)
    # AA 2/4, AC 2/4 beside AA 1/6, AC 3/6, CA 1/6, CC 1/6
    assert given["pair_distance"] == pytest.approx(1 / 3)


def test_what_chance_alone_leaves_is_as_draws_have_it() -> None:
    proteins = SyntheticProteins(300)
    counts = residue_counts(proteins[index] for index in range(300))
    draws = numpy.random.default_rng(0).multinomial(2000, counts / counts.sum(), size=400)
    found = numpy.mean([total_variation(drawn, counts) for drawn in draws])
    assert expected_distance(counts, 2000) == pytest.approx(found, rel=0.05)
