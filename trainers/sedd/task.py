"""Score-entropy diffusion of proteins: what is trained, validated and generated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainers.core.fields import ConfigError, convert
from trainers.core.sampling import split
from trainers.sedd import settings
from trainers.sedd.data import Protein, ProteinBatch, Proteins, Source, collated
from trainers.sedd.graph import GRAPHS
from trainers.sedd.loss import Score, diffusion_loss, times
from trainers.sedd.model import DiffusionTransformer, shape_of
from trainers.sedd.noise import noise_of
from trainers.sedd.sampling import predictor_of
from trainers.sedd.synthetic import SyntheticProteins
from trainers.task import Loss, Splits, Sum, Task


class SeddTask(Task):
    """Learns the score of proteins under noise; its arguments are the sections of `settings.Task`.

    Raises:
        ConfigError: with everything in them that makes no sense.
    """

    draws_from = ("torch",)

    def __init__(self, **sections: Any):
        problems: list[str] = []
        told: settings.Task | None = convert(sections, settings.Task, "", problems)
        if told is None:
            raise ConfigError(problems)
        self.settings = told
        self.graph = GRAPHS[told.graph.type]()
        self.noise = noise_of(told.noise, told.graph)
        predictor_of(told.sampling, self.graph)
        self._shape = shape_of(told.model)
        self._scaled = told.graph.type == "absorb"
        if told.model.scale_by_sigma is not None:
            self._scaled = told.model.scale_by_sigma
        if self._scaled and told.graph.type == "uniform":
            raise ConfigError(
                [
                    "model.scale_by_sigma: is true, but on graph.type: uniform the noise alone says nothing "
                    "of how large a score is; leave it out, or write graph.type: absorb"
                ]
            )

    def build_model(self) -> nn.Module:
        """The diffusion transformer."""
        checkpointing = self.settings.memory.gradient_checkpointing
        return DiffusionTransformer(self._shape, scale_by_sigma=self._scaled, checkpointing=checkpointing)

    def build_data(self) -> Splits:
        """Proteins to train on, to validate and to test with."""
        data = self.settings.data
        source: Source = SyntheticProteins(data.synthetic, data.split_seed)
        proteins = Proteins(source, data.max_length)
        return Splits(*split(proteins, data.split, data.split_seed))

    def collate(self, samples: list[Protein]) -> ProteinBatch:
        """Side by side, padded."""
        return collated(samples, self.settings.data.max_length)

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        """The diffusion loss, a mean over residues."""
        each = self._losses(model, batch, times(batch.time, self._power()))
        return Loss(each.sum(), self._residues(batch))

    def evaluate(self, model: nn.Module, batch: ProteinBatch) -> Mapping[str, Sum]:
        """The bound, and the score entropy at each fixed level of noise."""
        residues = self._residues(batch)
        sums: dict[str, Sum] = {"loss": (self._losses(model, batch, times(batch.time)).sum(), residues)}
        for sigma in self.settings.eval.fixed_noise:
            sums[f"fixed_noise_{sigma:g}"] = (self._at(model, batch, sigma).sum(), residues)
        return sums

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """The means, and the perplexity that the bound allows at most."""
        means = dict(super().finish(sums))
        return {**means, "perplexity": math.exp(min(means.get("loss", math.nan), 700.0))}

    def _losses(self, model: nn.Module, batch: ProteinBatch, time: Tensor) -> Tensor:
        return diffusion_loss(_score(model, batch), self.graph, self.noise, batch.tokens, time, batch.noise)

    def _at(self, model: nn.Module, batch: ProteinBatch, level: float) -> Tensor:
        """The score entropy of each position under so much total noise."""
        sigma = torch.full_like(batch.time, level)
        noisy = self.graph.corrupted(batch.tokens, sigma.unsqueeze(-1), batch.noise)
        log_score = _score(model, batch)(noisy, sigma)
        return self.graph.score_entropy(log_score, sigma.unsqueeze(-1), noisy, batch.tokens)

    def _residues(self, batch: ProteinBatch) -> Tensor:
        return (batch.tokens < self.graph.residues).sum()

    def _power(self) -> float:
        """How much more often little noise is seen than much, at this step of the curriculum."""
        curriculum = self.settings.curriculum
        if not curriculum.enabled:
            return 1.0
        return 1.0 + curriculum.difficulty_ramp * max(0.0, 1 - self.state.step / curriculum.preschool_time)


def _score(model: nn.Module, batch: ProteinBatch) -> Score:
    return lambda tokens, sigma: model(tokens, sigma, batch.padded)
