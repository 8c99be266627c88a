"""The denoising score entropy of proteins under noise: the training loss, and a bound on their likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from torch import Tensor

from castoff.trainers.sedd.graph import GraphOfStates
from castoff.trainers.sedd.noise import Noise

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Maps noisy tokens (batch, length) and total noise (batch,) to the log score (batch, length, residues)."""

EARLIEST = 1e-3
"""The earliest time: at time 0 the exact score is infinite."""


def times(uniform: Tensor, power: float = 1.0) -> Tensor:
    """Map uniform numbers in [0, 1) to times; a power above 1 favours early times, which have little
    noise.
    """
    return EARLIEST + (1 - EARLIEST) * uniform**power


class UnderNoise(NamedTuple):
    """Proteins after noise, and the model's output for them."""

    sigma: Tensor
    """Total noise, (batch, 1)."""
    noisy: Tensor
    """Tokens, (batch, length)."""
    log_score: Tensor
    """(batch, length, residues)."""


def under_noise(
    score: Score, graph: GraphOfStates, clean: Tensor, sigma: Tensor, uniform: Tensor
) -> UnderNoise:
    """Add total noise sigma (batch,) to proteins, and apply the model.

    `uniform` (batch, length): numbers in [0, 1), which decide how each token changes.
    """
    sigmas = sigma.unsqueeze(-1)
    noisy = graph.corrupted(clean, sigmas, uniform)
    return UnderNoise(sigmas, noisy, score(noisy, sigma))


def score_entropy(graph: GraphOfStates, clean: Tensor, noised: UnderNoise) -> Tensor:
    """The score entropy of each position (batch, length), at rate 1; 0 where there is no residue."""
    return graph.score_entropy(noised.log_score, noised.sigma, noised.noisy, clean)


def diffusion_loss(
    graph: GraphOfStates, noise: Noise, clean: Tensor, time: Tensor, noised: UnderNoise
) -> Tensor:
    """The loss of each position (batch, length), in nats: rate times score entropy, at the times (batch,).

    Its mean over uniform times is an upper bound on a protein's negative log-likelihood (Lou, Meng, Ermon,
    theorem 3.6, without the term of time 1, which does not depend on the model).
    """
    return noise.rate(time).unsqueeze(-1) * score_entropy(graph, clean, noised)


def reconstruction_loss(graph: GraphOfStates, clean: Tensor, noised: UnderNoise) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the residues that noise has changed, summed, and their number."""
    changed = noised.noisy != clean
    probabilities = graph.denoised(noised.log_score, noised.noisy, noised.sigma)
    of_clean = probabilities.gather(-1, clean.clamp(max=graph.residues - 1).unsqueeze(-1)).squeeze(-1)
    return -(of_clean.clamp(min=1e-30).log() * changed).sum(), changed.sum()
