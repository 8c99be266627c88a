"""Baselines for a network on causal sets: estimators, a threshold, forests on some numbers of each set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy
import numpy.typing
import torch

from castoff.trainers.gnn.causets.features import SCALARS
from castoff.trainers.gnn.causets.samples import DIMENSION, MANIFOLD_LIKE

Numbers: TypeAlias = "numpy.typing.NDArray[numpy.float64]"
Truths: TypeAlias = "numpy.typing.NDArray[numpy.bool_]"

TREES = 200
LEAF = 2
"""Smallest number of causal sets in a leaf: better for these data than scikit-learn's default."""


FOREST = f"forest on {len(SCALARS)} scalars"
FULL_FOREST = "forest on these and all features"
ROUNDED = "Myrheim-Meyer, clipped and rounded"


class Sets(NamedTuple):
    """Features and true properties of several causal sets."""

    scalars: Numbers
    """(sets, SCALARS): the scalars of each set."""
    manifold_like: Truths
    dimension: Numbers
    """The dimension of each set; 0 if it has none."""
    kind: numpy.typing.NDArray[numpy.int64]
    features: Numbers
    """(sets, any number): mean and standard deviation of each feature over a set's elements."""


class Guess(NamedTuple):
    """What a method predicts for the held-out sets; None: it does not predict this."""

    name: str
    manifold_like: Truths | None
    dimension: Numbers | None


def sets_of(graphs: Iterable[Any]) -> Sets:
    """Collect features and targets from generated graphs."""
    rows, features = [], []
    for graph in graphs:
        rows.append((graph.graph_features, graph.y, graph.kind))
        features.append(torch.cat([graph.x.mean(0), graph.x.std(0, correction=0)]))
    scalars, targets, kinds = (torch.cat(column).numpy() for column in zip(*rows, strict=True))
    return Sets(
        scalars.astype(numpy.float64),
        targets[:, MANIFOLD_LIKE] > 0.5,
        targets[:, DIMENSION].astype(numpy.float64),
        kinds,
        torch.stack(features).double().numpy(),
    )


def estimates(train: Sets, test: Sets) -> list[Guess]:
    """Dimensions estimated by counting: raw, clipped to the dimensions of training sets, and rounded."""
    dimensions = train.dimension[train.dimension > 0]
    low, high = (dimensions.min(), dimensions.max()) if len(dimensions) else (-numpy.inf, numpy.inf)
    raw = _scalar(test, "Myrheim-Meyer")
    clipped = numpy.clip(raw, low, high)
    inside = numpy.clip(_scalar(test, "Myrheim-Meyer inside"), low, high)
    midpoint = _scalar(test, "midpoint scaling")
    return [
        Guess("Myrheim-Meyer", None, raw),
        Guess("Myrheim-Meyer, clipped", None, clipped),
        Guess(ROUNDED, None, numpy.rint(clipped)),
        Guess("Myrheim-Meyer of the largest interval, clipped", None, inside),
        Guess("midpoint scaling", None, midpoint),
        Guess("midpoint scaling, clipped", None, numpy.clip(midpoint, low, high)),
    ]


def threshold(train: Sets, test: Sets) -> Guess:
    """The threshold on the ordering fraction that classifies the most training sets correctly."""
    fractions = _scalar(train, "ordering fraction")
    order = numpy.argsort(fractions, kind="stable")
    ordered, is_manifold = fractions[order], train.manifold_like[order]
    # right[i]: correct answers if the first i sets are classified as not manifold-like, and the others as
    # manifold-like.
    right = numpy.concatenate([[0], numpy.cumsum(~is_manifold)]) + is_manifold.sum()
    right = right - numpy.concatenate([[0], numpy.cumsum(is_manifold)])
    ends = numpy.concatenate([[-numpy.inf], (ordered[1:] + ordered[:-1]) / 2, [numpy.inf]])
    # Equal fractions stay together.
    between = numpy.concatenate([[True], ordered[1:] > ordered[:-1], [True]])
    above = int(numpy.where(between, right, -1).argmax())
    below = int(numpy.where(between, len(ordered) - right, -1).argmax())
    seen = _scalar(test, "ordering fraction")
    if right[above] >= len(ordered) - right[below]:
        return Guess(_THRESHOLD, seen > ends[above], None)
    return Guess(_THRESHOLD, seen <= ends[below], None)


_THRESHOLD = "threshold on the ordering fraction"


def forest(train: Sets, test: Sets, *, full: bool = False) -> Guess | None:
    """Predictions of scikit-learn's random forests, trained on SCALARS; None: scikit-learn is not installed.

    `full`: train them on the features, too.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    except ModuleNotFoundError:
        return None
    settings = {"n_estimators": TREES, "min_samples_leaf": LEAF, "random_state": 0}
    train_input, test_input = (
        numpy.concatenate([sets.scalars, sets.features], axis=1) if full else sets.scalars
        for sets in (train, test)
    )
    judge = RandomForestClassifier(**settings).fit(train_input, train.manifold_like)
    has_dimension = train.dimension > 0
    dimension = None
    if has_dimension.any():
        measure = RandomForestRegressor(**settings).fit(
            train_input[has_dimension], train.dimension[has_dimension]
        )
        dimension = measure.predict(test_input)
    return Guess(FULL_FOREST if full else FOREST, judge.predict(test_input), dimension)


def guesses(train: Sets, test: Sets) -> list[Guess]:
    """The predictions of all baselines."""
    all_guesses = [
        forest(train, test),
        forest(train, test, full=True),
        threshold(train, test),
        *estimates(train, test),
    ]
    return [guess for guess in all_guesses if guess is not None]


# --- How good a guess is --------------------------------------------------------------------------------


def accuracy(guess: Guess, test: Sets, among: Truths | None = None) -> float | None:
    """The share of sets that are classified correctly; `among` selects the sets."""
    if guess.manifold_like is None:
        return None
    right = guess.manifold_like == test.manifold_like
    return _mean(right if among is None else right[among])


def macro_f1(guess: Guess, test: Sets) -> float | None:
    """The mean of the two classes' F1 scores; a class that neither occurs nor is predicted does not count."""
    if guess.manifold_like is None:
        return None
    scores = []
    for guessed, true in (
        (guess.manifold_like, test.manifold_like),
        (~guess.manifold_like, ~test.manifold_like),
    ):
        both = int(guessed.sum()) + int(true.sum())
        if both:
            scores.append(2 * int((guessed & true).sum()) / both)
    return _mean(scores)


def dimension_error(guess: Guess, test: Sets, among: Truths | None = None) -> float | None:
    """The mean absolute error over the sets that have a dimension."""
    if guess.dimension is None:
        return None
    has_dimension = test.dimension > 0
    if among is not None:
        has_dimension = has_dimension & among
    return _mean(numpy.abs(guess.dimension - test.dimension)[has_dimension])


def _mean(values: Sequence[float] | numpy.typing.NDArray[Any]) -> float | None:
    return float(numpy.mean(values)) if len(values) else None


def _scalar(sets: Sets, name: str) -> Numbers:
    return sets.scalars[:, SCALARS.index(name)]
