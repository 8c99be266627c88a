"""Inverse folding learned from structures, by the likelihood of their own sequences. It makes base models."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import EVALUATION, derived, seed_all
from castoff.trainers.dpo import settings
from castoff.trainers.dpo.export import export
from castoff.trainers.dpo.loss import smoothed_likelihood_loss
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.sampling import sampled
from castoff.trainers.dpo.samples.batch import Batch, Sample
from castoff.trainers.dpo.samples.data import ChainSet, collated
from castoff.trainers.dpo.samples.parts import Parts, divided, see_that_they_are_the_same
from castoff.trainers.task import Loss, Splits, Sum, Task, move

logger = logging.getLogger(__name__)

SAMPLED = 16
"""Number of chains for which sequences are sampled after a validation."""
TEMPERATURE = 0.1
"""The temperature at which sequences are sampled for the native sequence recovery: ProteinMPNN's default,
at which recoveries are usually reported.
"""


class LikelihoodTask(Task):
    """Learns the sequences of structures; its arguments are the sections of `settings.Likelihood`.

    Raises:
        ConfigError: lists everything in the arguments that makes no sense.
    """

    rng_sources = ("torch",)
    volatile_arguments = ("data.structures", "data.validation_structures", "data.test_structures")
    """Folders may be moved: the digests in a checkpoint show whether their chains are the same."""

    _parts: Parts
    _digests: dict[str, str]

    def __init__(self, **sections: Any):
        problems: list[str] = []
        read: settings.Likelihood | None = convert(sections, settings.Likelihood, "", problems)
        if read is None:
            raise ConfigError(problems)
        self.settings = read

    def setup(self, context: RankContext) -> None:
        """Read the structures. Only training chains get noise."""
        data, cache = self.settings.data, self.state.folder
        fields = {"train": "structures", "validation": "validation_structures", "test": "test_structures"}
        sets = {
            name: context.on_main(partial(ChainSet, folder, data, 0.0, cache, f"data.{field}"))
            for name, field in fields.items()
            if (folder := getattr(data, field))
        }
        division = divided(sets, data, "chains")
        for note in division.notes if context.is_main else ():
            logger.warning("%s", note)
        noisy = sets["train"].with_noise(self.settings.model.backbone_noise)
        self._parts = division.of(sets)._replace(train=Subset(noisy, division.train))
        self._digests = division.digests

    def build_model(self) -> nn.Module:
        """Build the network, of the size in the settings."""
        model = self.settings.model
        return InverseFolding(
            model.hidden_size,
            model.encoder_layers,
            model.decoder_layers,
            model.neighbours,
            model.dropout,
        )

    def build_data(self) -> Splits:
        """The chains for training, validation and test."""
        return Splits(*self._parts)

    def collate(self, samples: list[Sample]) -> Batch:
        """Pad samples to a batch."""
        return collated(samples)

    # --- What a checkpoint keeps ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The digests of the training and validation chains."""
        return {"digests": self._digests}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that the training and validation chains are the checkpoint's.

        Raises:
            ConfigError: they differ.
        """
        data = self.settings.data
        field = "validation_structures" if data.validation_structures else "structures"
        fields = {
            "train": (f"data.structures: {data.structures} holds other chains", "trained on"),
            "validation": (
                f"data.{field}: {getattr(data, field)} holds other chains to validate with",
                "validated with",
            ),
        }
        see_that_they_are_the_same(state["digests"], self._digests, fields)

    # --- What is learned --------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The label-smoothed negative log-likelihood, a mean over designed residues."""
        logits = model(batch.backbones, batch.sequences, batch.order)
        share = self.settings.model.label_smoothing
        total = smoothed_likelihood_loss(logits, batch.sequences, batch.designed, share)
        return Loss(total, batch.designed.sum())

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Sum]:
        """Sums of the negative log-likelihood, and of correctly predicted residues.

        For each residue, the network sees the structure's own residues that were decoded before (teacher
        forcing), so the accuracy is not the recovery.
        """
        logits: Tensor = model(batch.backbones, batch.sequences, batch.order)
        total = smoothed_likelihood_loss(logits, batch.sequences, batch.designed, 0.0)
        right = (logits.argmax(-1) == batch.sequences) & batch.designed.unsqueeze(1)
        count = batch.designed.sum()
        return {"loss": (total, count), "accuracy/teacher_forced": (right.sum(), count)}

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """The means, and the perplexity per residue."""
        means = dict(super().finish(sums))
        if "loss" not in means:  # without chains, there is no loss
            return means
        return {**means, "perplexity": math.exp(min(means["loss"], 700.0))}

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """The recovery: the share of native residues in sequences that are sampled for some chains.

        It is compared with the share of the most frequent residue, which needs no network.
        """
        seed_all(derived(EVALUATION, self.state.seed))  # the same draws in each validation
        device = next(model.parameters()).device
        batch = cast("Batch", move(collated(_some(self._parts.validation)), device))
        native = batch.sequences[:, 0]
        numbers = torch.rand(len(native), 1, native.shape[1]).to(device)
        drawn = sampled(
            cast("InverseFolding", model),
            batch.backbones,
            native,
            batch.designed,
            batch.order.unsqueeze(1),
            numbers,
            TEMPERATURE,
        ).sequences[:, 0]
        designed = native[batch.designed]
        recovered = float((drawn[batch.designed] == designed).float().mean())
        most_frequent = float(designed.bincount().max() / len(designed))
        message = (
            "Native sequence recovery, sampled for %d chains: %.3f; if only the most frequent residue "
            "is guessed: %.3f"
        )
        logger.info(message, len(native), recovered, most_frequent)
        return {"recovery/sampled": recovered, "recovery/most_frequent": most_frequent}

    # --- For others -------------------------------------------------------------------------------

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        """Write the model in ProteinMPNN's format."""
        export(model, self.settings.model.backbone_noise, folder, self.state, better=better)


def _some(samples: Subset[Sample]) -> list[Sample]:
    """Some samples from all over the set, because its files may be sorted."""
    return [samples[index] for index in Permutation(len(samples), 0)[:SAMPLED]]
