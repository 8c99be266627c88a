"""What is guessed to be worse."""

from __future__ import annotations

import gemmi
import numpy
import pytest

from castoff.trainers.dpo.alphabet import RESIDUES
from castoff.trainers.dpo.samples.worse import HYDROPATHY, LIKENESS, burial, worse


def test_likeness_is_blosum62() -> None:
    """By what the library for structures aligns with: between tryptophans no gap is worth its price."""
    scoring, around = gemmi.AlignmentScoring("b"), ["TRP"] * 5
    names = [gemmi.expand_one_letter(letter, gemmi.ResidueKind.AA) for letter in RESIDUES]
    for first, mine in enumerate(names):
        for second, other in enumerate(names):
            row, below = ([*around, name, *around] for name in (mine, other))
            found = gemmi.align_string_sequences(row, below, [], scoring)
            assert found.score == 110 + LIKENESS[first, second]


def test_hydropathy_is_that_of_each_letter() -> None:
    ends = {"I": 4.5, "V": 4.2, "L": 3.8, "R": -4.5, "K": -3.9, "G": -0.4, "Y": -1.3, "W": -0.9}
    assert {letter: HYDROPATHY[RESIDUES.index(letter)] for letter in ends} == ends


def test_burial_of_a_ball() -> None:
    """Residues at random in a ball: the deeper, the more buried; what is not resolved counts for none."""
    generator = numpy.random.default_rng(0)
    places = generator.normal(size=(300, 3))
    places *= 18 * generator.random((300, 1)) ** (1 / 3) / numpy.linalg.norm(places, axis=1, keepdims=True)
    shape = numpy.array([[-1.2, 0.8, 0], [0, 0, 0], [1.2, 0.8, 0], [2.0, 1.6, 0]])
    atoms = (places[:, None] + shape).astype(numpy.float32)
    resolved = numpy.ones(300, numpy.bool_)
    resolved[:40] = False
    atoms[:40] = 0
    found = burial(atoms, resolved)
    assert numpy.isnan(found[:40]).all() and numpy.isfinite(found[40:]).all()
    depth = numpy.linalg.norm(places[40:], axis=1)
    assert numpy.corrcoef(depth, found[40:])[0, 1] < -0.5
    assert found[40:].min() >= 0 and found[40:].max() <= 1
    turned = numpy.linalg.qr(generator.normal(size=(3, 3)))[0]
    turned *= numpy.sign(numpy.linalg.det(turned))
    assert numpy.allclose(burial((atoms @ turned).astype(numpy.float32) + 7, resolved)[40:], found[40:])


@pytest.mark.parametrize(
    ("native", "depth", "letters"),
    [
        ("L", 1.0, "ACDEGHKNPQRSTWY"),  # less hydrophobic, and unlike
        ("L", 0.0, ""),  # what is less hydrophobic is better there
        ("K", 0.0, "ACFGILMPTVWYH"),
        ("K", 1.0, ""),
        ("L", 0.5, ""),
    ],
)
def test_worse_is_what_is_unlike_and_fits_less(native: str, depth: float, letters: str) -> None:
    tokens = numpy.array([RESIDUES.index(native)], numpy.uint8)
    (found,) = worse(tokens, numpy.array([depth]))
    picked = {RESIDUES[token] for token in numpy.flatnonzero(found)}
    assert picked <= set(letters) - {native}
    assert bool(picked) == bool(letters)
    for letter in picked:
        assert LIKENESS[RESIDUES.index(native), RESIDUES.index(letter)] < 0
