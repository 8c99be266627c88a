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
"""Causal sets in a leaf, at least: better here than the one that scikit-learn starts from."""


FOREST = f"forest on {len(SCALARS)} scalars"
FULL_FOREST = "forest on these and all features"
ROUNDED = "Myrheim-Meyer, clipped and rounded"


class Sets(NamedTuple):
    """What is known of some causal sets."""

    scalars: Numbers
    """(sets, SCALARS)."""
    manifold_like: Truths
    dimension: Numbers
    """0: it has none."""
    kind: numpy.typing.NDArray[numpy.int64]
    features: Numbers
    """(sets, any number): mean and standard deviation of each feature of the elements."""


class Guess(NamedTuple):
    """What something says of the held-out sets; None: it says nothing of that."""

    name: str
    manifold_like: Truths | None
    dimension: Numbers | None


def sets_of(graphs: Iterable[Any]) -> Sets:
    """What generated graphs say of themselves."""
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
    """The dimension by counting: as it comes, clipped to the dimensions there are, and rounded."""
    known = train.dimension[train.dimension > 0]
    low, high = (known.min(), known.max()) if len(known) else (-numpy.inf, numpy.inf)
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
    """The ordering fraction above or below which the most training sets are judged right."""
    fractions = _scalar(train, "ordering fraction")
    order = numpy.argsort(fractions, kind="stable")
    found, manifold = fractions[order], train.manifold_like[order]
    # Right where the first so many are said to be no manifold, and the others to be one.
    right = numpy.concatenate([[0], numpy.cumsum(~manifold)]) + manifold.sum()
    right = right - numpy.concatenate([[0], numpy.cumsum(manifold)])
    ends = numpy.concatenate([[-numpy.inf], (found[1:] + found[:-1]) / 2, [numpy.inf]])
    between = numpy.concatenate([[True], found[1:] > found[:-1], [True]])  # equal ones stay together
    above = int(numpy.where(between, right, -1).argmax())
    below = int(numpy.where(between, len(found) - right, -1).argmax())
    seen = _scalar(test, "ordering fraction")
    if right[above] >= len(found) - right[below]:
        return Guess(_THRESHOLD, seen > ends[above], None)
    return Guess(_THRESHOLD, seen <= ends[below], None)


_THRESHOLD = "threshold on the ordering fraction"


def forest(train: Sets, test: Sets, *, full: bool = False) -> Guess | None:
    """scikit-learn's random forests on SCALARS, trained on the training sets; None: it is not installed.

    `full`: on the features, too.
    """
    try:
        from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    except ModuleNotFoundError:
        return None
    given = {"n_estimators": TREES, "min_samples_leaf": LEAF, "random_state": 0}
    given_of_train, given_of_test = (
        numpy.concatenate([each.scalars, each.features], axis=1) if full else each.scalars
        for each in (train, test)
    )
    judge = RandomForestClassifier(**given).fit(given_of_train, train.manifold_like)
    known = train.dimension > 0
    dimension = None
    if known.any():
        measure = RandomForestRegressor(**given).fit(given_of_train[known], train.dimension[known])
        dimension = measure.predict(given_of_test)
    return Guess(FULL_FOREST if full else FOREST, judge.predict(given_of_test), dimension)


def guesses(train: Sets, test: Sets) -> list[Guess]:
    """All of them."""
    found = [
        forest(train, test),
        forest(train, test, full=True),
        threshold(train, test),
        *estimates(train, test),
    ]
    return [each for each in found if each is not None]


# --- How good a guess is --------------------------------------------------------------------------------


def accuracy(guess: Guess, test: Sets, among: Truths | None = None) -> float | None:
    """The share of the sets that are judged right."""
    if guess.manifold_like is None:
        return None
    right = guess.manifold_like == test.manifold_like
    return _mean(right if among is None else right[among])


def macro_f1(guess: Guess, test: Sets) -> float | None:
    """The mean of the two classes' F1 scores; a class that is neither there nor guessed does not count."""
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
    known = test.dimension > 0
    if among is not None:
        known = known & among
    return _mean(numpy.abs(guess.dimension - test.dimension)[known])


def _mean(values: Sequence[float] | numpy.typing.NDArray[Any]) -> float | None:
    return float(numpy.mean(values)) if len(values) else None


def _scalar(sets: Sets, name: str) -> Numbers:
    return sets.scalars[:, SCALARS.index(name)]
