"""The denoising score entropy of proteins under noise: what is trained, and a bound on their likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor

from castoff.trainers.sedd.graph import GraphOfStates
from castoff.trainers.sedd.noise import Noise

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Noisy tokens (batch, length) and total noise (batch,) to the logarithm of the score of each residue."""

EARLIEST = 1e-3
"""Times begin here: at 0 the exact score is infinite."""


def times(uniform: Tensor, power: float = 1.0) -> Tensor:
    """Times from uniform numbers in [0, 1); a power above 1 makes early ones, with little noise, frequent."""
    return EARLIEST + (1 - EARLIEST) * uniform**power


class UnderNoise(NamedTuple):
    """Proteins after noise, and what a model makes of them."""

    sigma: Tensor
    """Total noise, (batch, 1)."""
    noisy: Tensor
    """Tokens, (batch, length)."""
    log_score: Tensor
    """(batch, length, residues)."""


def under_noise(
    score: Score, graph: GraphOfStates, clean: Tensor, sigma: Tensor, uniform: Tensor
) -> UnderNoise:
    """Proteins after total noise sigma (batch,).

    `uniform`: numbers in [0, 1), which decide what becomes of each token.
    """
    each = sigma.unsqueeze(-1)
    noisy = graph.corrupted(clean, each, uniform)
    return UnderNoise(each, noisy, score(noisy, sigma))


def score_entropy(graph: GraphOfStates, clean: Tensor, met: UnderNoise) -> Tensor:
    """The score entropy of each position (batch, length), at rate 1; 0 where there is no residue."""
    return graph.score_entropy(met.log_score, met.sigma, met.noisy, clean)


def diffusion_loss(
    graph: GraphOfStates, noise: Noise, clean: Tensor, time: Tensor, met: UnderNoise
) -> Tensor:
    """Of each position (batch, length), in nats: rate times score entropy, at the times (batch,).

    Its mean over uniform times is a bound on the negative logarithm of a protein's likelihood (Lou, Meng,
    Ermon, theorem 3.6, without the term of time 1, which no model changes).
    """
    return noise.rate(time).unsqueeze(-1) * score_entropy(graph, clean, met)


def reconstruction_loss(graph: GraphOfStates, clean: Tensor, met: UnderNoise) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the residues that noise has changed, and how many these are."""
    changed = met.noisy != clean
    chances = graph.denoised(met.log_score, met.noisy, met.sigma)
    of_clean = chances.gather(-1, clean.clamp(max=graph.residues - 1).unsqueeze(-1)).squeeze(-1)
    return -(of_clean.clamp(min=1e-30).log() * changed).sum(), changed.sum()
