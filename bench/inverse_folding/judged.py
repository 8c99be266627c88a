"""What a model makes of chains and of pairs that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy
import numpy.typing
import torch

from bench.proteins.comparison import Mean, mean_of
from castoff.trainers.dpo.alphabet import LETTERS, UNKNOWN
from castoff.trainers.dpo.design import designs, target
from castoff.trainers.dpo.loss import CHOSEN, REJECTED, log_probabilities
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.samples.data import PairSet, collated

Numbers = numpy.typing.NDArray[numpy.float64]

TEMPERATURE = 0.1
DESIGNS = 4
"""Sequences that are drawn for each chain."""


class Recovery(NamedTuple):
    """How much of held-out chains' sequences comes back, with the error over chains."""

    sampled: Mean
    most_frequent: float
    """The share of the residue that most of them are."""
    residue: str
    residues: int

    @property
    def gain(self) -> float:
        """How many times more comes back."""
        return self.sampled.value / self.most_frequent


@torch.no_grad()
def recovery(model: InverseFolding, files: Sequence[Path]) -> Recovery:
    """Of sequences drawn residue by residue, each after those that were drawn before it."""
    known, recovered = [], []
    counts = numpy.zeros(len(LETTERS))
    for path in files:
        aim = target(path)
        native = aim.structure.native[aim.designed]
        native = native[native != UNKNOWN]
        counts += numpy.bincount(native, minlength=len(LETTERS))
        drawn = list(designs(model, aim, DESIGNS, TEMPERATURE, 0, DESIGNS))
        known.append(float(len(native)))
        recovered.append(len(native) * sum(each.recovery for each in drawn) / len(drawn))
    mean = mean_of(numpy.array(recovered), numpy.array(known), list(range(len(files))))
    return Recovery(mean, counts.max() / counts.sum(), LETTERS[int(counts.argmax())], int(counts.sum()))


@torch.no_grad()
def likelihoods(model: InverseFolding, pairs: PairSet, temperatures: Sequence[float]) -> list[Numbers]:
    """Log-probabilities (pairs, 2) of the chosen and the rejected sequences, at each temperature."""
    order = sorted(range(len(pairs)), key=pairs.lengths.__getitem__)
    found = [numpy.zeros((len(pairs), 2)) for _ in temperatures]
    for first in range(0, len(order), 8):
        numbers = order[first : first + 8]
        batch = collated([pairs[number] for number in numbers])
        logits = model(batch.backbones, batch.sequences, batch.order)
        for each, temperature in zip(found, temperatures, strict=True):
            each[numbers] = log_probabilities(logits, batch.sequences, batch.designed, temperature).numpy()
    return found


class Preferred(NamedTuple):
    """What tuning has changed on held-out pairs, with errors over structures."""

    accuracy: Mean
    """Pairs whose chosen sequence has become more likely than the rejected one, beside the base model."""
    right_before: Mean
    """Pairs whose chosen sequence the base model finds more likely."""
    right_after: Mean
    fall: float
    """By which share the chosen ones' log-likelihood has fallen."""


def preferred(before: Numbers, after: Numbers, pairs: PairSet) -> Preferred:
    """From log-probabilities (pairs, 2) by the base model and by the tuned one."""
    structures = [hash(things) for things in pairs.things]
    one = numpy.ones(len(pairs))

    def share(of: numpy.typing.NDArray[numpy.bool_]) -> Mean:
        return mean_of(of.astype(float), one, structures)

    ratios = after - before
    return Preferred(
        share(ratios[:, CHOSEN] > ratios[:, REJECTED]),
        share(before[:, CHOSEN] > before[:, REJECTED]),
        share(after[:, CHOSEN] > after[:, REJECTED]),
        float(after[:, CHOSEN].sum() / before[:, CHOSEN].sum() - 1),
    )
