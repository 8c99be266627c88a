"""The two graphs on which residues turn into others: into a mask, or into any other residue.

Forwards in time, a residue follows the Markov chain dp/dt = sigma'(t) Q p. Backwards it follows the same
chain, with rates multiplied by the score p_t(y) / p_t(x), whose logarithm a model predicts for each residue y
(Lou, Meng, Ermon, arXiv 2310.16834). Tokens are numbered as in `alphabet`. Shapes: tokens (batch, length),
log score (batch, length, residues), total noise sigma (batch, 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK
from castoff.trainers.sedd.noise import log_expm1

_NEXT_TO_NOTHING = 1e-18


class GraphOfStates(ABC):
    """How noise changes `residues` different residues, and how its steps are reversed."""

    def __init__(self, residues: int = MASK):
        self.residues = residues

    @abstractmethod
    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """Add total noise sigma to tokens. `uniform`, a number in [0, 1) for each token, decides how it
        changes.

        Tokens that are not residues stay as they are.
        """

    @abstractmethod
    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """The denoising score entropy (equation 8 of Lou et al.) of each position, at rate 1: 0 for the exact
        score.

        It is 0 where `clean` is not a residue.
        """

    @abstractmethod
    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Tokens of pure noise, from which generation starts."""

    @abstractmethod
    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """Probabilities (batch, length, residues) of the tokens after an Euler step backwards; `step` (batch,
        1): rate times duration. If they sum to less than 1, the rest is the probability of a mask.
        """

    @abstractmethod
    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """Probabilities of the tokens after a step that removes total noise `step`: exact for a position if
        no other changes (Tweedie theorem 4.2 of Lou, Meng, Ermon).
        """

    @abstractmethod
    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """Probabilities of the tokens after the last step, which removes the remaining noise sigma."""

    def _where(self, counts: Tensor, log_score: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """The log score, and its value at the clean residue; both are 0 where a position does not count."""
        # Where no loss trains the score, its exponential may be infinite, and 0 times infinity is nan in the
        # gradient.
        log_score = torch.where(counts.unsqueeze(-1), log_score, 0.0)
        at_clean = log_score.gather(-1, clean.clamp(max=self.residues - 1).unsqueeze(-1)).squeeze(-1)
        return log_score, at_clean


class Absorbing(GraphOfStates):
    """A residue becomes a mask, and stays one."""

    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """Mask each residue with probability 1 - exp(-sigma)."""
        masked = (uniform < -torch.expm1(-sigma)) & (tokens < self.residues)
        return torch.where(masked, MASK, tokens)

    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """For masked positions, the sum of the scores - a log(score of the clean residue) + a (log(a) - 1),
        with a = 1 / (exp(sigma) - 1).
        """
        counts = (clean < self.residues) & (noisy == MASK)
        log_score, at_clean = self._where(counts, log_score, clean)
        log_growth = log_expm1(sigma)
        wanted = (-log_growth).exp()
        entropy = log_score.exp().sum(-1) - wanted * at_clean - wanted * (log_growth + 1)
        return torch.where(counts, entropy, 0.0)

    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Only masks."""
        return torch.full(shape, MASK, device=device)

    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """A mask becomes each residue with probability `step` times its score."""
        return self._unmasked(log_score.exp() * step.unsqueeze(-1), tokens)

    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """A mask becomes each residue with probability (exp(step) - 1) times its score."""
        return self._unmasked((log_score + log_expm1(step).unsqueeze(-1)).exp(), tokens)

    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """Every mask becomes a residue."""
        return self._unmasked(log_score.softmax(-1), tokens)

    def _unmasked(self, probabilities: Tensor, tokens: Tensor) -> Tensor:
        total = probabilities.sum(-1, keepdim=True).clamp(min=1)  # may exceed 1 after a long step
        stays = torch.nn.functional.one_hot(tokens.clamp(max=self.residues), self.residues + 1)[..., :-1]
        return torch.where((tokens == MASK).unsqueeze(-1), probabilities / total, stays.to(probabilities))


class Uniform(GraphOfStates):
    """A residue becomes any of the residues, with equal probability."""

    def corrupted(self, tokens: Tensor, sigma: Tensor, uniform: Tensor) -> Tensor:
        """Replace each residue by a random one with probability 1 - exp(-sigma)."""
        chance = -torch.expm1(-sigma)
        hit = (uniform < chance) & (tokens < self.residues)
        drawn = (uniform / chance * self.residues).long().clamp(max=self.residues - 1)
        return torch.where(hit, drawn, tokens)

    def score_entropy(self, log_score: Tensor, sigma: Tensor, noisy: Tensor, clean: Tensor) -> Tensor:
        """The sum of score(y) - a log(score(y)) + a (log(a) - 1) over all other residues y, divided by
        `residues`.

        With r = (exp(sigma) - 1) / (exp(sigma) - 1 + residues), a is r if the token is unchanged. If it was
        changed, a is 1 / r for the clean residue and 1 for the others.
        """
        counts = clean < self.residues
        log_score, at_clean = self._where(counts, log_score, clean)
        others = torch.ones_like(log_score).scatter_(-1, self._index(noisy), 0.0)
        scores, logs = (log_score.exp() * others).sum(-1), (log_score * others).sum(-1)
        chance = -torch.expm1(-sigma)
        ratio = chance / (chance + self.residues * (-sigma).exp())
        unmoved = scores - ratio * logs + (self.residues - 1) * ratio * (ratio.log() - 1)
        moved = scores - logs + at_clean - at_clean / ratio - (ratio.log() + 1) / ratio - (self.residues - 2)
        entropy = torch.where(noisy == clean, unmoved, moved) / self.residues
        return torch.where(counts, entropy, 0.0)

    def start(
        self, shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device
    ) -> Tensor:
        """Residues drawn uniformly."""
        return torch.randint(self.residues, shape, generator=generator, device=device)

    def euler(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """A token becomes each other residue with probability `step` times its score / `residues`; else it
        stays.
        """
        moves = log_score.exp() * step.unsqueeze(-1) / self.residues
        moves = moves.scatter(-1, self._index(tokens), 0.0)
        moves = moves / moves.sum(-1, keepdim=True).clamp(min=1)
        stays = (1 - moves.sum(-1, keepdim=True)).clamp(min=0)
        return moves.scatter(-1, self._index(tokens), stays)

    def analytic(self, log_score: Tensor, tokens: Tensor, step: Tensor) -> Tensor:
        """The inverse noise applied to the scores, times the probability that noise turns each residue into
        the token.
        """
        index, unchanged = self._index(tokens), (-step).exp().unsqueeze(-1)
        changed = -torch.expm1(-step).unsqueeze(-1) / self.residues
        scores = log_score.exp().scatter(-1, index, 1.0)
        # After a long step, rounding leaves little of the difference, or nothing: then all residues are
        # equally likely.
        before = (scores - changed * scores.sum(-1, keepdim=True)).clamp(min=_NEXT_TO_NOTHING)
        forwards = changed.expand_as(scores).scatter_add(-1, index, unchanged.expand_as(scores[..., :1]))
        probabilities = before * forwards
        return probabilities / probabilities.sum(-1, keepdim=True)

    def denoised(self, log_score: Tensor, tokens: Tensor, sigma: Tensor) -> Tensor:
        """An analytic step that removes all noise."""
        return self.analytic(log_score, tokens, sigma)

    def _index(self, tokens: Tensor) -> Tensor:
        return tokens.clamp(max=self.residues - 1).unsqueeze(-1)


GRAPHS: dict[str, type[GraphOfStates]] = {"absorb": Absorbing, "uniform": Uniform}
"""The graphs by their names in a configuration."""
