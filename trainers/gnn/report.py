"""A network for causal sets compared with estimators, a threshold and forests, on held-out sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch_geometric.data import Batch

from castoff.trainers.gnn.baselines import (
    FOREST,
    FULL_FOREST,
    ROUNDED,
    Guess,
    Sets,
    Truths,
    accuracy,
    dimension_error,
    guesses,
    macro_f1,
    sets_of,
)
from castoff.trainers.gnn.causets.settings import NAMES
from castoff.trainers.gnn.criteria import DIMENSION, MANIFOLD_LIKE

NETWORK = "this network"

_RIVALS = (FOREST, FULL_FOREST, ROUNDED)
"""The strongest of the baselines."""

TOGETHER = 256
"""Number of graphs in a batch."""


class Report(NamedTuple):
    """The text for people, and the baselines' errors of the dimension, to draw next to the network's."""

    text: str
    lines: Mapping[str, float]


def report(
    apply: Callable[[nn.Module, Any], Any],
    model: nn.Module,
    train: Sequence[Any],
    test: Sequence[Any],
    device: torch.device,
) -> Report | None:
    """Compare the network with baselines on the test set; None if a set is empty.

    `apply(model, batch)` returns {0: logits that sets are manifold-like, 1: their dimensions}, or one of
    them.
    """
    if not len(train) or not len(test):
        return None
    seen, held_out = sets_of(_each(train)), sets_of(_each(test))
    network = guess_of(apply, model, test, device)
    return compared(network, guesses(seen, held_out), held_out, len(seen.kind))


def guess_of(
    apply: Callable[[nn.Module, Any], Any], model: nn.Module, graphs: Sequence[Any], device: torch.device
) -> Guess:
    """The predictions of a network for graphs."""
    was = model.training
    model.eval()
    parts_by_head: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for first in range(0, len(graphs), TOGETHER):
            batch = Batch.from_data_list([graphs[index] for index in range(len(graphs))[first:][:TOGETHER]])
            for head, output in apply(model, batch.to(device)).items():
                parts_by_head.setdefault(head, []).append(output.squeeze(1).float().cpu())
    model.train(was)
    outputs = {head: torch.cat(parts).double().numpy() for head, parts in parts_by_head.items()}
    logits = outputs.get(MANIFOLD_LIKE)
    return Guess(NETWORK, None if logits is None else logits > 0, outputs.get(DIMENSION))


def compared(network: Guess, others: Sequence[Guess], test: Sets, trained_on: int) -> Report:
    """Compare the network with baselines in a report."""
    all_guesses = [network, *others]
    with_dimension = int((test.dimension > 0).sum())
    lines = [f"On {len(test.kind)} held-out causal sets, after {trained_on} others:"]
    judging = [guess for guess in all_guesses if guess.manifold_like is not None]
    if network.manifold_like is not None:
        rows = [(guess.name, accuracy(guess, test), macro_f1(guess, test)) for guess in judging]
        lines += ["", *_table(("manifold-like or not", "accuracy", "macro F1"), rows)]
    errors = [
        (guess.name, dimension_error(guess, test)) for guess in all_guesses if guess.dimension is not None
    ]
    measured = network.dimension is not None and with_dimension > 0
    if measured:
        lines += ["", *_table((f"dimension, of the {with_dimension} that have one", "mean error"), errors)]
    lines += ["", *_by_kind(network, others, test)]
    drawn = {name: error for name, error in errors if name in _RIVALS and error is not None}
    return Report("\n".join(lines), drawn if measured else {})


def _by_kind(network: Guess, others: Sequence[Guess], test: Sets) -> list[str]:
    """A table of the network and the strongest baselines, by kind of causal set."""
    compared_guesses = [network, *(guess for guess in others if guess.name in _RIVALS)]
    columns: list[tuple[str, Callable[[Truths], float | None]]] = []
    for baseline in compared_guesses:
        if network.manifold_like is not None and baseline.manifold_like is not None:
            columns.append((f"accuracy of {baseline.name}", partial(accuracy, baseline, test)))
    for guess in compared_guesses:
        if network.dimension is not None and guess.dimension is not None:
            columns.append((f"dimension error of {guess.name}", partial(dimension_error, guess, test)))
    numbers = [f"({index})" for index in range(1, len(columns) + 1)]
    rows = [
        (f"{name} ({int(among.sum())})", *(measure(among) for _, measure in columns))
        for name, among in ((name, test.kind == number) for number, name in enumerate(NAMES))
        if among.any()
    ]
    legend = [f"{number} {head}" for number, (head, _) in zip(numbers, columns, strict=True)]
    return [*_table(("kind (sets)", *numbers), rows), *legend]


def _table(heads: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """A table with names on the left and numbers on the right."""
    cells = [[str(row[0]), *("" if value is None else f"{value:.4f}" for value in row[1:])] for row in rows]
    first = max(len(row[0]) for row in [list(heads), *cells])
    widths = [max(len(row[index]) for row in [list(heads), *cells]) for index in range(1, len(heads))]
    lines = []
    for row in [list(heads), *cells]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True)]
        lines.append("  ".join([row[0].ljust(first), *numbers]).rstrip())
    return lines


def _each(graphs: Sequence[Any]) -> Iterator[Any]:
    return (graphs[index] for index in range(len(graphs)))
