"""The chains of noise as matrices, written down anew and slowly, to compare with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK


def rates(kind: str, residues: int) -> Tensor:
    """Q, with the rate from state x to y at [y, x]; the mask is the last state of the absorbing graph."""
    if kind == "uniform":
        return torch.ones(residues, residues, dtype=torch.float64) / residues - torch.eye(residues)
    matrix = torch.zeros(residues + 1, residues + 1, dtype=torch.float64)
    for residue in range(residues):
        matrix[residue, residue] = -1
        matrix[residues, residue] = 1
    return matrix


def transition(kind: str, residues: int, sigma: float) -> Tensor:
    """Probabilities of going from x to y at [y, x]."""
    made: Tensor = torch.linalg.matrix_exp(sigma * rates(kind, residues))
    return made


def token(state: int, residues: int) -> int:
    """The token of a state."""
    return MASK if state == residues else state


def states(kind: str, residues: int, length: int) -> Iterator[tuple[int, ...]]:
    """All states of a sequence."""
    each = range(residues + (kind == "absorb"))
    return itertools.product(each, repeat=length)


class Joint:
    """A distribution of sequences of `length` residues, under noise."""

    def __init__(self, kind: str, residues: int, length: int, seed: int = 0):
        self.kind, self.residues, self.length = kind, residues, length
        numbers = torch.rand(
            residues**length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        self.sequences = list(itertools.product(range(residues), repeat=length))
        self.probabilities = (numbers / numbers.sum()).tolist()

    def given(self, clean: tuple[int, ...], sigma: float) -> dict[tuple[int, ...], float]:
        """Of each noisy sequence, given a clean one."""
        step = transition(self.kind, self.residues, sigma)
        found = {}
        for noisy in states(self.kind, self.residues, self.length):
            chance = 1.0
            for after, before in zip(noisy, clean, strict=True):
                chance *= float(step[after, before])
            found[noisy] = chance
        return found

    def noisy(self, sigma: float) -> dict[tuple[int, ...], float]:
        """Of each noisy sequence."""
        found: dict[tuple[int, ...], float] = {}
        for clean, weight in zip(self.sequences, self.probabilities, strict=True):
            for noisy, chance in self.given(clean, sigma).items():
                found[noisy] = found.get(noisy, 0.0) + weight * chance
        return found

    def log_score(self, sigma: float) -> dict[tuple[int, ...], Tensor]:
        """The logarithm of the exact score, (length, residues), of each noisy sequence."""
        marginal = self.noisy(sigma)
        found = {}
        for noisy, chance in marginal.items():
            score = torch.zeros(self.length, self.residues, dtype=torch.float64)
            for position, residue in itertools.product(range(self.length), range(self.residues)):
                other = (*noisy[:position], residue, *noisy[position + 1 :])
                score[position, residue] = marginal[other] / chance
            found[noisy] = score.log()
        return found

    def entropy_of_clean_given_noisy(self, sigma: float) -> float:
        """H(X_0 | X_sigma), in nats."""
        marginal, total = self.noisy(sigma), 0.0
        for clean, weight in zip(self.sequences, self.probabilities, strict=True):
            for noisy, chance in self.given(clean, sigma).items():
                joint = weight * chance
                if joint > 0:
                    total -= joint * float(torch.tensor(joint / marginal[noisy], dtype=torch.float64).log())
        return total
