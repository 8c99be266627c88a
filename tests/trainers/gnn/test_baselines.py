"""What a network is compared with: guesses and how good they are, by hand."""

from __future__ import annotations

import sys

import numpy
import pytest

from castoff.trainers.gnn.baselines import (
    FOREST,
    FULL_FOREST,
    ROUNDED,
    Guess,
    Sets,
    accuracy,
    dimension_error,
    estimates,
    forest,
    guesses,
    macro_f1,
    sets_of,
    threshold,
)
from castoff.trainers.gnn.causets.features import SCALARS
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets


def sets(dimensions: list[float], manifold_like: list[bool] | None = None, **scalars: list[float]) -> Sets:
    """Causal sets with some scalars, by their names with _ for spaces and -."""
    table = numpy.zeros((len(dimensions), len(SCALARS)))
    plain = [name.lower().replace(" ", "_").replace("-", "_") for name in SCALARS]
    for name, values in scalars.items():
        table[:, plain.index(name)] = values
    manifold = [each > 0 for each in dimensions] if manifold_like is None else manifold_like
    kind = numpy.zeros(len(dimensions), dtype=numpy.int64)
    features = numpy.zeros((len(dimensions), 2))
    return Sets(table, numpy.array(manifold), numpy.array(dimensions, dtype=float), kind, features)


def test_estimates_are_clipped_to_what_there_is_and_rounded() -> None:
    train = sets([2, 5, 3, 0])
    test = sets([2, 3, 5], myrheim_meyer=[1.5, 3.4, 7.0], midpoint_scaling=[2.5, 1.0, 9.0])
    errors = {each.name: dimension_error(each, test) for each in estimates(train, test)}
    assert errors["Myrheim-Meyer"] == pytest.approx((0.5 + 0.4 + 2.0) / 3)
    assert errors["Myrheim-Meyer, clipped"] == pytest.approx((0.0 + 0.4 + 0.0) / 3)
    assert errors[ROUNDED] == 0
    assert errors["midpoint scaling"] == pytest.approx((0.5 + 2 + 4) / 3)
    assert errors["midpoint scaling, clipped"] == pytest.approx((0.5 + 1 + 0) / 3)


def test_errors_are_those_of_sets_with_a_dimension() -> None:
    test = sets([2, 0, 3.5])
    guess = Guess("", None, numpy.array([2.5, 99, 3.0]))
    assert dimension_error(guess, test) == pytest.approx(0.5)
    assert dimension_error(guess, test, numpy.array([True, True, False])) == pytest.approx(0.5)
    assert dimension_error(guess, test, numpy.array([False, True, False])) is None
    assert dimension_error(Guess("", None, None), test) is None


def test_accuracy_and_macro_f1() -> None:
    """Three of five right; F1 of manifold-like: 2 * 1 / (2 + 2), of the others: 2 * 2 / (3 + 3)."""
    test = sets([2, 2, 0, 0, 0])
    guess = Guess("", numpy.array([True, False, True, False, False]), None)
    assert accuracy(guess, test) == pytest.approx(3 / 5)
    assert accuracy(guess, test, numpy.array([True, True, False, False, False])) == pytest.approx(1 / 2)
    assert macro_f1(guess, test) == pytest.approx((1 / 2 + 2 / 3) / 2)
    alone = Guess("", numpy.ones(2, dtype=bool), None)
    assert macro_f1(alone, sets([2, 2])) == 1  # there is one class


@pytest.mark.parametrize("above", [True, False])
def test_the_threshold_is_the_best_one(above: bool) -> None:
    """One training set is on the wrong side wherever it is put; equal fractions cannot be parted."""
    fractions = [0.1, 0.2, 0.3, 0.3, 0.5, 0.6]
    manifold = [False, True, False, False, True, True]
    train = sets([0] * 6, [each == above for each in manifold], ordering_fraction=fractions)
    test = sets([0] * 4, [True] * 4, ordering_fraction=[0.05, 0.35, 0.45, 0.9])
    said = threshold(train, test).manifold_like
    assert said is not None
    assert said.tolist() == [each == above for each in (False, False, True, True)]
    own = threshold(train, train)
    assert accuracy(own, train) == pytest.approx(5 / 6)


def test_a_threshold_tries_all_and_none() -> None:
    train = sets([2, 2, 2], ordering_fraction=[0.1, 0.2, 0.3])
    said = threshold(train, sets([2, 2], ordering_fraction=[0.0, 1.0])).manifold_like
    assert said is not None and said.all()


def test_the_forest_learns_from_the_training_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.gnn.baselines.TREES", 20)
    fractions = numpy.linspace(0.1, 0.6, 60).tolist()
    train = sets([2.0 if each > 0.35 else 0.0 for each in fractions], ordering_fraction=fractions)
    test = sets([2, 0], ordering_fraction=[0.5, 0.2])
    guess = forest(train, test)
    assert guess is not None and guess.manifold_like is not None
    assert guess.manifold_like.tolist() == [True, False]
    assert dimension_error(guess, test) == pytest.approx(0)
    without = forest(sets([0, 0], ordering_fraction=[0.1, 0.2]), test)
    assert without is not None and without.dimension is None


def test_the_full_forest_sees_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.gnn.baselines.TREES", 20)
    train, test = sets([2.0, 0.0] * 30), sets([2, 0, 2])
    train.features[::2, 0], test.features[::2, 0] = 1, 1
    (full,) = (each for each in guesses(train, test) if each.name == FULL_FOREST)
    assert accuracy(full, test) == 1 and dimension_error(full, test) == pytest.approx(0)


def test_the_forest_needs_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    train = sets([2, 0], ordering_fraction=[0.5, 0.1], myrheim_meyer=[2, 3])
    assert forest(train, train) is None
    assert FOREST not in [each.name for each in guesses(train, train)]


def test_sets_are_read_from_their_graphs() -> None:
    graphs = [sample(Causets(size=(8, 20)), 0, index) for index in range(5)]
    found = sets_of(graphs)
    assert found.scalars.shape == (5, len(SCALARS))
    assert found.manifold_like.tolist() == [bool(each.y[0, 0]) for each in graphs]
    assert found.dimension.tolist() == [float(each.y[0, 1]) for each in graphs]
    assert found.kind.tolist() == [int(each.kind) for each in graphs]
    assert numpy.allclose(found.scalars[3], graphs[3].graph_features[0])
