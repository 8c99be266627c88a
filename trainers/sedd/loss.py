"""The denoising score entropy of proteins under noise: what is trained, and a bound on their likelihood."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from trainers.sedd.graph import GraphOfStates
from trainers.sedd.noise import Noise

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Noisy tokens (batch, length) and total noise (batch,) to the logarithm of the score of each residue."""

EARLIEST = 1e-3
"""Times begin here: at 0 the exact score is infinite."""


def times(uniform: Tensor, power: float = 1.0) -> Tensor:
    """Times from uniform numbers in [0, 1); a power above 1 makes early ones, with little noise, frequent."""
    return EARLIEST + (1 - EARLIEST) * uniform**power


def diffusion_loss(
    score: Score, graph: GraphOfStates, noise: Noise, clean: Tensor, time: Tensor, uniform: Tensor
) -> Tensor:
    """Of each position (batch, length), in nats: rate times score entropy, 0 where there is no residue.

    Its mean over uniform times is a bound on the negative logarithm of a protein's likelihood (Lou, Meng,
    Ermon, theorem 3.6, without the term of time 1, which no model changes). `clean`: tokens (batch, length);
    `time`: (batch,); `uniform`: numbers in [0, 1) that decide what noise does to each token.
    """
    sigma = noise.total(time).unsqueeze(-1)
    noisy = graph.corrupted(clean, sigma, uniform)
    entropy = graph.score_entropy(score(noisy, sigma.squeeze(-1)), sigma, noisy, clean)
    return noise.rate(time).unsqueeze(-1) * entropy
