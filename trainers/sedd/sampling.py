"""Generation: removes noise step by step, from time 1 to 0."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK, PADDING
from castoff.trainers.sedd.graph import GraphOfStates
from castoff.trainers.sedd.loss import Score
from castoff.trainers.sedd.noise import Noise
from castoff.trainers.sedd.settings import Sampling

LAST = 1e-5
"""The time at which the steps end, just above 0."""


@torch.no_grad()
def sampled(
    score: Score,
    graph: GraphOfStates,
    noise: Noise,
    settings: Sampling,
    lengths: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Generate tokens (number, longest): `lengths` residues for each protein, followed by PADDING.

    `lengths` (number,) and `generator` are on the model's device.
    """
    device = lengths.device
    shape = (len(lengths), int(lengths.max()))
    padding = torch.arange(shape[1], device=device) >= lengths.unsqueeze(-1)
    tokens = graph.start(shape, generator, device).masked_fill(padding, PADDING)
    marks = torch.linspace(1, LAST, settings.steps + 1, device=device)
    for begin, end in pairwise(marks):
        sigma = noise.total(begin)
        log_score = score(tokens, sigma.expand(len(lengths)))
        if settings.predictor == "euler":
            step = noise.rate(begin) * (begin - end)
            probabilities = graph.euler(log_score, tokens, step.expand(len(lengths), 1))
        else:
            step = (sigma - noise.total(end)).clamp(min=0)  # may be negative by rounding
            probabilities = graph.analytic(log_score, tokens, step.expand(len(lengths), 1))
        tokens = _drawn(probabilities, tokens, padding, generator)
    if settings.noise_removal:
        remaining = noise.total(marks[-1]).expand(len(lengths), 1)
        log_score = score(tokens, remaining.squeeze(-1))
        tokens = _drawn(graph.denoised(log_score, tokens, remaining), tokens, padding, generator)
    return tokens


def _drawn(
    probabilities: Tensor, tokens: Tensor, padding: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Draw tokens from probabilities (number, length, residues); what these lack to 1 is the probability of
    MASK.

    In float64: the 24 bits of float32 leave out rare residues, which makes samples too similar (Zheng et al.,
    arXiv 2409.02908).
    """
    kind = torch.float32 if probabilities.device.type == "mps" else torch.float64
    below = probabilities.to(kind).cumsum(-1)
    below[..., -1] = torch.where(below[..., -1] > 1 - 1e-6, 1.0, below[..., -1])  # else rounding draws masks
    number = torch.rand(tokens.shape, generator=generator, dtype=kind, device=tokens.device)
    drawn = (number.unsqueeze(-1) >= below).sum(-1)
    drawn = drawn.masked_fill(drawn == probabilities.shape[-1], MASK)
    return torch.where(padding, tokens, drawn)
