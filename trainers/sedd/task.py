"""Score-entropy diffusion of proteins: its training, validation and generation."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.alphabet import Tokens
from castoff.trainers.sedd.data import Protein, ProteinBatch, collated
from castoff.trainers.sedd.graph import GRAPHS
from castoff.trainers.sedd.loss import (
    UnderNoise,
    diffusion_loss,
    reconstruction_loss,
    score_entropy,
    times,
    under_noise,
)
from castoff.trainers.sedd.model import DiffusionTransformer, shape_of
from castoff.trainers.sedd.noise import noise_of
from castoff.trainers.sedd.parts import Sources, divided, doubts, opened
from castoff.trainers.sedd.sampling import sampled
from castoff.trainers.sedd.statistics import Counts, metrics, pair_counts, residue_counts
from castoff.trainers.task import Loss, Splits, Sum, Task

logger = logging.getLogger(__name__)

AT_ONCE = 32
"""Proteins generated in one batch after a validation, in the memory that training leaves."""
LOOKED_AT = 1000
"""Number of training proteins with which generated ones are compared."""


class SeddTask(Task):
    """Learns the score of proteins under noise; its arguments are the sections of `settings.Task`.

    Raises:
        ConfigError: lists everything in the arguments that makes no sense.
    """

    rng_sources = ("torch",)
    volatile_arguments = ("data.datafile", "data.validation_datafile", "data.test_datafile")
    """Files may be moved: the digests in a checkpoint show whether their proteins are the same."""
    changeable_arguments = ("sampling", "eval", "memory", "monitoring")

    _sources: Sources

    def __init__(self, **sections: Any):
        problems: list[str] = []
        read: settings.Task | None = convert(sections, settings.Task, "", problems)
        if read is None:
            raise ConfigError(problems)
        self.settings = read
        self.graph = GRAPHS[read.graph.type]()
        self.noise = noise_of(read.noise, read.graph)
        self._shape = shape_of(read.model)
        self._scaled = read.graph.type == "absorb"
        if read.model.scale_by_sigma is not None:
            self._scaled = read.model.scale_by_sigma
        if self._scaled and read.graph.type == "uniform":
            raise ConfigError(
                [
                    "model.scale_by_sigma: is true, but on graph.type: uniform the noise level does not "
                    "determine how large a score is; leave it out, or write graph.type: absorb"
                ]
            )

    def build_model(self) -> nn.Module:
        """Build the diffusion transformer."""
        checkpointing = self.settings.memory.gradient_checkpointing
        return DiffusionTransformer(self._shape, scale_by_sigma=self._scaled, checkpointing=checkpointing)

    def setup(self, context: RankContext) -> None:
        """Open the stores of the data files; rank 0 makes missing stores while the others wait."""
        self._sources = opened(self.settings.data, context)

    def build_data(self) -> Splits:
        """The proteins for training, validation and test."""
        parts = divided(self._sources, self.settings.data, self.settings.eval.proteins)
        for note in doubts(parts, self._sources, self.settings.data) if self.state.rank == 0 else ():
            logger.warning("%s", note)
        return Splits(*parts)

    def state_dict(self) -> dict[str, Any]:
        """The digests of the proteins, by data set."""
        return {"proteins": self._sources.digests()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that the proteins for training, and those of a validation file, are the checkpoint's.

        Raises:
            ConfigError: they differ.
        """
        data, digests = self.settings.data, self._sources.digests()
        files = {
            "train": ("datafile", data.datafile, "trained on, and what is validated with could be learned"),
            "validation": ("validation_datafile", data.validation_datafile, "validated with before"),
        }
        problems = []
        for part, (field, file, use) in files.items():
            before, current = (recorded.get(part, "none") for recorded in (state["proteins"], digests))
            if before != current:
                problems.append(
                    f"data.{field}: {file} holds other proteins (digest {current[:12]}) than those "
                    f"({before[:12]}) that the checkpoint was {use}; restore the checkpoint's data, or "
                    "start over with training.fresh: true (--fresh)"
                )
        if problems:
            raise ConfigError(problems)

    def collate(self, samples: list[Protein]) -> ProteinBatch:
        """Pad proteins to a batch."""
        return collated(samples, self.settings.data.max_length)

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        """The diffusion loss, a mean over residues."""
        time = times(batch.time, self._power())
        noised = self._under_noise(model, batch, self.noise.total(time))
        return Loss(
            diffusion_loss(self.graph, self.noise, batch.tokens, time, noised).sum(), self._count(batch)
        )

    def evaluate(self, model: nn.Module, batch: ProteinBatch) -> Mapping[str, Sum]:
        """Sums of the bound, the reconstruction loss, and the score entropy at fixed levels of noise."""
        count, time = self._count(batch), times(batch.time)
        noised = self._under_noise(model, batch, self.noise.total(time))
        sums: dict[str, Sum] = {
            "loss": (diffusion_loss(self.graph, self.noise, batch.tokens, time, noised).sum(), count),
            "reconstruction_loss": reconstruction_loss(self.graph, batch.tokens, noised),
        }
        for level in self.settings.eval.fixed_noise:
            noised = self._under_noise(model, batch, torch.full_like(batch.time, level))
            sums[f"fixed_noise_{level:g}"] = (score_entropy(self.graph, batch.tokens, noised).sum(), count)
        return sums

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """The means, and an upper bound on the perplexity."""
        means = dict(super().finish(sums))
        if not self.settings.eval.perplexity or "loss" not in means:  # without proteins, there is no loss
            return means
        return {**means, "perplexity": math.exp(min(means["loss"], 700.0))}

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """Metrics of generated proteins, named generation/…; empty if none are due."""
        number = self.settings.sampling.number
        if not number or not self._is_due(self.settings.monitoring.sample_frequency):
            return {}
        lengths = self.usual_lengths(number)
        generated: list[Tokens] = []
        for first in range(0, number, AT_ONCE):
            generated += self.generate(model, lengths[first : first + AT_ONCE])
        values = metrics(generated, *self._counts_of_data)
        return {f"generation/{name}": value for name, value in values.items()}

    @cached_property
    def _counts_of_data(self) -> tuple[Counts, Counts]:
        """Counts of residues and pairs in some training proteins: made once, while other ranks wait."""
        source = self._sources.train
        data = [source[index] for index in Permutation(len(source), self.state.seed)[:LOOKED_AT]]
        return residue_counts(data), pair_counts(data)

    def _is_due(self, every: int | None) -> bool:
        """Whether a multiple of `every` steps was reached since the previous validation."""
        return every is None or self.state.step // every > (self.state.judged or 0) // every

    def generate(
        self, model: nn.Module, lengths: Sequence[int], generator: torch.Generator | None = None
    ) -> list[Tokens]:
        """Generate proteins of `lengths` residues; `model` is in eval mode, `generator` on its device."""
        padded = len(set(lengths)) > 1
        tokens = sampled(
            lambda noisy, sigma: model(noisy, sigma, padded),
            self.graph,
            self.noise,
            self.settings.sampling,
            torch.tensor(lengths, device=next(model.parameters()).device),
            generator,
        )
        rows = tokens.to("cpu", torch.uint8).numpy()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def usual_lengths(self, number: int) -> list[int]:
        """Draw lengths of training proteins with torch's global generator."""
        source, longest = self._sources.train, self.settings.data.max_length
        drawn = torch.randint(len(source), (number,)).tolist()
        return [min(source.length_of(index), longest) for index in drawn]

    def _under_noise(self, model: nn.Module, batch: ProteinBatch, sigma: Tensor) -> UnderNoise:
        def score(tokens: Tensor, sigma: Tensor) -> Tensor:
            log_score: Tensor = model(tokens, sigma, batch.padded)
            return log_score

        return under_noise(score, self.graph, batch.tokens, sigma, batch.noise)

    def _count(self, batch: ProteinBatch) -> Tensor:
        return (batch.tokens < self.graph.residues).sum()

    def _power(self) -> float:
        """The exponent for `times` at this step: above 1, little noise is more frequent than much."""
        curriculum = self.settings.curriculum
        if not curriculum.enabled:
            return 1.0
        return 1.0 + curriculum.difficulty_ramp * max(0.0, 1 - self.state.step / curriculum.preschool_time)
