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
"""What is strongest of those compared."""

TOGETHER = 256
"""Graphs in a batch."""


class Report(NamedTuple):
    """What people read, and errors of the dimension to draw beside the network's."""

    text: str
    lines: Mapping[str, float]


def report(
    apply: Callable[[nn.Module, Any], Any],
    model: nn.Module,
    train: Sequence[Any],
    test: Sequence[Any],
    device: torch.device,
) -> Report | None:
    """The network and what it is compared with, on the test set; None where it is empty.

    `apply(model, batch)` gives {0: logits that sets are manifold-like, 1: their dimensions}, or one of them.
    """
    if not len(train) or not len(test):
        return None
    seen, held_out = sets_of(_each(train)), sets_of(_each(test))
    network = guess_of(apply, model, test, device)
    return compared(network, guesses(seen, held_out), held_out, len(seen.kind))


def guess_of(
    apply: Callable[[nn.Module, Any], Any], model: nn.Module, graphs: Sequence[Any], device: torch.device
) -> Guess:
    """What a network says of graphs."""
    was = model.training
    model.eval()
    found: dict[int, list[torch.Tensor]] = {}
    with torch.no_grad():
        for first in range(0, len(graphs), TOGETHER):
            batch = Batch.from_data_list([graphs[at] for at in range(len(graphs))[first:][:TOGETHER]])
            for head, output in apply(model, batch.to(device)).items():
                found.setdefault(head, []).append(output.squeeze(1).float().cpu())
    model.train(was)
    outputs = {head: torch.cat(parts).double().numpy() for head, parts in found.items()}
    logits = outputs.get(MANIFOLD_LIKE)
    return Guess(NETWORK, None if logits is None else logits > 0, outputs.get(DIMENSION))


def compared(network: Guess, others: Sequence[Guess], test: Sets, trained_on: int) -> Report:
    """A report that compares the network with the others."""
    everything = [network, *others]
    known = int((test.dimension > 0).sum())
    lines = [f"On {len(test.kind)} held-out causal sets, after {trained_on} others:"]
    judging = [each for each in everything if each.manifold_like is not None]
    if network.manifold_like is not None:
        rows = [(each.name, accuracy(each, test), macro_f1(each, test)) for each in judging]
        lines += ["", *_table(("manifold-like or not", "accuracy", "macro F1"), rows)]
    errors = [(each.name, dimension_error(each, test)) for each in everything if each.dimension is not None]
    measured = network.dimension is not None and known > 0
    if measured:
        lines += ["", *_table((f"dimension, of the {known} that have one", "mean error"), errors)]
    lines += ["", *_by_kind(network, others, test)]
    drawn = {name: error for name, error in errors if name in _RIVALS and error is not None}
    return Report("\n".join(lines), drawn if measured else {})


def _by_kind(network: Guess, others: Sequence[Guess], test: Sets) -> list[str]:
    """The network and its strongest rivals, kind by kind."""
    rivals = [network, *(each for each in others if each.name in _RIVALS)]
    columns: list[tuple[str, Callable[[Truths], float | None]]] = []
    for rival in rivals:
        if network.manifold_like is not None and rival.manifold_like is not None:
            columns.append((f"accuracy of {rival.name}", partial(accuracy, rival, test)))
    for each in rivals:
        if network.dimension is not None and each.dimension is not None:
            columns.append((f"dimension error of {each.name}", partial(dimension_error, each, test)))
    numbers = [f"({place})" for place in range(1, len(columns) + 1)]
    rows = [
        (f"{name} ({int(among.sum())})", *(measure(among) for _, measure in columns))
        for name, among in ((name, test.kind == number) for number, name in enumerate(NAMES))
        if among.any()
    ]
    given = [f"{number} {head}" for number, (head, _) in zip(numbers, columns, strict=True)]
    return [*_table(("kind (sets)", *numbers), rows), *given]


def _table(heads: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Names on the left, numbers on the right."""
    cells = [[str(row[0]), *("" if each is None else f"{each:.4f}" for each in row[1:])] for row in rows]
    first = max(len(row[0]) for row in [list(heads), *cells])
    widths = [max(len(row[place]) for row in [list(heads), *cells]) for place in range(1, len(heads))]
    lines = []
    for row in [list(heads), *cells]:
        numbers = [cell.rjust(width) for cell, width in zip(row[1:], widths, strict=True)]
        lines.append("  ".join([row[0].ljust(first), *numbers]).rstrip())
    return lines


def _each(graphs: Sequence[Any]) -> Iterator[Any]:
    return (graphs[at] for at in range(len(graphs)))
