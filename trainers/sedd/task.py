"""Score-entropy diffusion of proteins: what is trained, validated and generated."""

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
"""Proteins that are generated side by side after a validation, in the memory that training leaves."""
LOOKED_AT = 1000
"""Proteins of the data file with which generated ones are compared."""


class SeddTask(Task):
    """Learns the score of proteins under noise; its arguments are the sections of `settings.Task`.

    Raises:
        ConfigError: with everything in them that makes no sense.
    """

    rng_sources = ("torch",)
    volatile_arguments = ("data.datafile", "data.validation_datafile", "data.test_datafile")
    """Files may be moved: what a checkpoint keeps of their proteins tells whether they are the same."""
    changeable_arguments = ("sampling", "eval", "memory", "monitoring")

    _sources: Sources

    def __init__(self, **sections: Any):
        problems: list[str] = []
        found: settings.Task | None = convert(sections, settings.Task, "", problems)
        if found is None:
            raise ConfigError(problems)
        self.settings = found
        self.graph = GRAPHS[found.graph.type]()
        self.noise = noise_of(found.noise, found.graph)
        self._shape = shape_of(found.model)
        self._scaled = found.graph.type == "absorb"
        if found.model.scale_by_sigma is not None:
            self._scaled = found.model.scale_by_sigma
        if self._scaled and found.graph.type == "uniform":
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

    def setup(self, context: RankContext) -> None:
        """Open the data files' stores, of which rank 0 makes those that are not there yet."""
        self._sources = opened(self.settings.data, context)

    def build_data(self) -> Splits:
        """Proteins to train on, to validate and to test with."""
        parts = divided(self._sources, self.settings.data, self.settings.eval.proteins)
        for note in doubts(parts, self._sources, self.settings.data) if self.state.rank == 0 else ():
            logger.warning("%s", note)
        return Splits(*parts)

    def state_dict(self) -> dict[str, Any]:
        """Which proteins are trained on."""
        return {"proteins": self._sources.digests()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See that they are those of the checkpoint, and those validated with, where they have a file.

        Raises:
            ConfigError: they are others.
        """
        data, digests = self.settings.data, self._sources.digests()
        files = {
            "train": ("datafile", data.datafile, "trained on, and what is validated with could be learned"),
            "validation": ("validation_datafile", data.validation_datafile, "validated with before"),
        }
        problems = []
        for part, (field, file, what) in files.items():
            before, now = (known.get(part, "none") for known in (state["proteins"], digests))
            if before != now:
                problems.append(
                    f"data.{field}: {file} holds other proteins (digest {now[:12]}) than those "
                    f"({before[:12]}) that the checkpoint was {what}; bring these back, or start over with "
                    "training.fresh: true (--fresh)"
                )
        if problems:
            raise ConfigError(problems)

    def collate(self, samples: list[Protein]) -> ProteinBatch:
        """Side by side, padded."""
        return collated(samples, self.settings.data.max_length)

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        """The diffusion loss, a mean over residues."""
        time = times(batch.time, self._power())
        met = self._under_noise(model, batch, self.noise.total(time))
        return Loss(diffusion_loss(self.graph, self.noise, batch.tokens, time, met).sum(), self._count(batch))

    def evaluate(self, model: nn.Module, batch: ProteinBatch) -> Mapping[str, Sum]:
        """The bound, how well noise is seen through, and the score entropy at fixed levels of noise."""
        count, time = self._count(batch), times(batch.time)
        met = self._under_noise(model, batch, self.noise.total(time))
        sums: dict[str, Sum] = {
            "loss": (diffusion_loss(self.graph, self.noise, batch.tokens, time, met).sum(), count),
            "reconstruction_loss": reconstruction_loss(self.graph, batch.tokens, met),
        }
        for level in self.settings.eval.fixed_noise:
            met = self._under_noise(model, batch, torch.full_like(batch.time, level))
            sums[f"fixed_noise_{level:g}"] = (score_entropy(self.graph, batch.tokens, met).sum(), count)
        return sums

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """The means, and the perplexity that the bound allows at most."""
        means = dict(super().finish(sums))
        if not self.settings.eval.perplexity or "loss" not in means:  # of no proteins there is none
            return means
        return {**means, "perplexity": math.exp(min(means["loss"], 700.0))}

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """What generated proteins look like, named generation/…, where it is time for some."""
        number = self.settings.sampling.number
        if not number or not self._is_due(self.settings.monitoring.sample_frequency):
            return {}
        lengths = self.usual_lengths(number)
        generated: list[Tokens] = []
        for first in range(0, number, AT_ONCE):
            generated += self.generate(model, lengths[first : first + AT_ONCE])
        found = metrics(generated, *self._counts_of_data)
        return {f"generation/{name}": value for name, value in found.items()}

    @cached_property
    def _counts_of_data(self) -> tuple[Counts, Counts]:
        """Residues and pairs of some proteins of the data file: looked up once, while other ranks wait."""
        source = self._sources.train
        data = [source[index] for index in Permutation(len(source), self.state.seed)[:LOOKED_AT]]
        return residue_counts(data), pair_counts(data)

    def _is_due(self, every: int | None) -> bool:
        """Whether a multiple of so many steps was reached since the validation before this one."""
        return every is None or self.state.step // every > (self.state.judged or 0) // every

    def generate(
        self, model: nn.Module, lengths: Sequence[int], generator: torch.Generator | None = None
    ) -> list[Tokens]:
        """Proteins of so many residues each; `model` in eval mode, `generator` on its device."""
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
        """Lengths of proteins of the data file, drawn by torch's global generator."""
        source, most = self._sources.train, self.settings.data.max_length
        drawn = torch.randint(len(source), (number,)).tolist()
        return [min(source.length_of(index), most) for index in drawn]

    def _under_noise(self, model: nn.Module, batch: ProteinBatch, sigma: Tensor) -> UnderNoise:
        def score(tokens: Tensor, sigma: Tensor) -> Tensor:
            given: Tensor = model(tokens, sigma, batch.padded)
            return given

        return under_noise(score, self.graph, batch.tokens, sigma, batch.noise)

    def _count(self, batch: ProteinBatch) -> Tensor:
        return (batch.tokens < self.graph.residues).sum()

    def _power(self) -> float:
        """How much more often little noise is seen than much, at this step of the curriculum."""
        curriculum = self.settings.curriculum
        if not curriculum.enabled:
            return 1.0
        return 1.0 + curriculum.difficulty_ramp * max(0.0, 1 - self.state.step / curriculum.preschool_time)
