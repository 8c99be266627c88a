"""The two graphs on which residues turn into others: into a mask, or into any other residue.

Forwards a residue follows the Markov chain dp/dt = sigma'(t) Q p. Backwards it follows the same with rates
times the score p_t(y) / p_t(x), of which a model gives the logarithm for each residue y (Lou, Meng, Ermon,
arXiv 2310.16834; the tokens' numbers are alphabet's). Shapes: tokens (batch, length), a logarithm of the
score (batch, length, residues), total noise sigma (batch, 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK
from castoff.trainers.sedd.noise import log_expm1

_NEXT_TO_NOTHING = 1e-18


class GraphOfStates(ABC):
    """What noise does to `residues` residues, and how that is undone."""

    def __init__(self, residues: int = MASK):
        self.residues = residues

    @abstractmethod
    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """The tokens after noise of sigma; `uniform`: a number in [0, 1) for each, which decides.

        What is not a residue stays as it is.
        """

    @abstractmethod
    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """The denoising score entropy (their equation 8) of each position, at rate 1: 0 for the exact score.

        Where `clean` is not a residue it is 0.
        """

    @abstractmethod
    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Tokens that know nothing of any protein, from which generation starts."""

    @abstractmethod
    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """Probabilities (batch, length, residues) of the tokens after an Euler step back of rate times
        time `step` (batch, 1); what they lack to 1 is that of a mask."""

    @abstractmethod
    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """The same after a step back of total noise `step`, exact for each position by itself (their
        Tweedie theorem 4.2)."""

    @abstractmethod
    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """The last step: from the remaining noise sigma to time 0."""

    def _where(self, counts: Tensor, log_score: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """The score's logarithm, and that at the clean residue, where a position counts; elsewhere 0.

        What a network gives where nothing teaches it may be so large that its exponential is infinite,
        and 0 times that is not a gradient.
        """
        log_score = torch.where(counts.unsqueeze(-1), log_score, 0.0)
        at_clean = log_score.gather(-1, clean.clamp(max=self.residues - 1).unsqueeze(-1)).squeeze(-1)
        return log_score, at_clean


class Absorbing(GraphOfStates):
    """A residue becomes a mask, and stays one."""

    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """Masked with probability 1 - exp(-sigma)."""
        masked = (uniform < -torch.expm1(-sigma)) & (tokens < self.residues)
        return torch.where(masked, MASK, tokens)

    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """Of masked positions: the sum of the scores - a log(score of the residue) + a (log(a) - 1), with
        a = 1 / (exp(sigma) - 1)."""
        counts = (clean < self.residues) & (noisy == MASK)
        log_score, at_clean = self._where(counts, log_score, clean)
        log_growth = log_expm1(sigma)
        wanted = (-log_growth).exp()
        entropy = log_score.exp().sum(-1) - wanted * at_clean - wanted * (log_growth + 1)
        return torch.where(counts, entropy, 0.0)

    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Masks alone."""
        return torch.full(shape, MASK, device=device)

    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """A mask becomes each residue at the rate of its score."""
        return self._unmasked(log_score.exp() * step.unsqueeze(-1), tokens)

    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """A mask becomes each residue with probability (exp(step) - 1) times its score."""
        return self._unmasked((log_score + log_expm1(step).unsqueeze(-1)).exp(), tokens)

    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """No mask is left."""
        return self._unmasked(log_score.softmax(-1), tokens)

    def _unmasked(self, probabilities: Tensor, tokens: Tensor) -> Tensor:
        total = probabilities.sum(-1, keepdim=True).clamp(min=1)  # a long step of a rough score
        stays = torch.nn.functional.one_hot(tokens.clamp(max=self.residues), self.residues + 1)[..., :-1]
        return torch.where((tokens == MASK).unsqueeze(-1), probabilities / total, stays.to(probabilities))


class Uniform(GraphOfStates):
    """A residue becomes any of the residues, all alike often."""

    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """Drawn anew with probability 1 - exp(-sigma)."""
        chance = -torch.expm1(-sigma)
        met = (uniform < chance) & (tokens < self.residues)
        drawn = (uniform / chance * self.residues).long().clamp(max=self.residues - 1)
        return torch.where(met, drawn, tokens)

    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """Over all other residues y, a residue-th of score(y) - a log(score(y)) + a (log(a) - 1).

        With r = (exp(sigma) - 1) / (exp(sigma) - 1 + residues), a is r where the token is clean; else 1 / r
        for the clean residue, and 1 for the others.
        """
        known = clean < self.residues
        log_score, at_clean = self._where(known, log_score, clean)
        others = torch.ones_like(log_score).scatter_(-1, self._own(noisy), 0.0)
        scores, logs = (log_score.exp() * others).sum(-1), (log_score * others).sum(-1)
        met = -torch.expm1(-sigma)
        ratio = met / (met + self.residues * (-sigma).exp())
        unmoved = scores - ratio * logs + (self.residues - 1) * ratio * (ratio.log() - 1)
        moved = scores - logs + at_clean - at_clean / ratio - (ratio.log() + 1) / ratio - (self.residues - 2)
        entropy = torch.where(noisy == clean, unmoved, moved) / self.residues
        return torch.where(known, entropy, 0.0)

    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Residues drawn uniformly."""
        return torch.randint(self.residues, shape, generator=generator, device=device)

    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """Each other residue at a residue-th of the rate of its score; else it stays."""
        moves = log_score.exp() * step.unsqueeze(-1) / self.residues
        moves = moves.scatter(-1, self._own(tokens), 0.0)
        moves = moves / moves.sum(-1, keepdim=True).clamp(min=1)
        stays = (1 - moves.sum(-1, keepdim=True)).clamp(min=0)
        return moves.scatter(-1, self._own(tokens), stays)

    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """The inverse of the noise on the scores, times the noise from each residue to the token."""
        own, left = self._own(tokens), (-step).exp().unsqueeze(-1)
        met = -torch.expm1(-step).unsqueeze(-1) / self.residues
        scores = log_score.exp().scatter(-1, own, 1.0)
        # Over a long step little is left of the difference, or nothing: then all are as likely.
        before = (scores - met * scores.sum(-1, keepdim=True)).clamp(min=_NEXT_TO_NOTHING)
        forwards = met.expand_as(scores).scatter_add(-1, own, left.expand_as(scores[..., :1]))
        made = before * forwards
        return made / made.sum(-1, keepdim=True)

    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """As `analytic`."""
        return self.analytic(log_score, tokens, sigma)

    def _own(self, tokens: Tensor) -> Tensor:
        return tokens.clamp(max=self.residues - 1).unsqueeze(-1)


GRAPHS: dict[str, type[GraphOfStates]] = {"absorb": Absorbing, "uniform": Uniform}
"""By the names that a configuration has for them."""
