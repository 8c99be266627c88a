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
"""Chains for which sequences are drawn after a validation."""
TEMPERATURE = 0.1
"""At which they are drawn; ProteinMPNN's own, at which recoveries are usually reported."""


class LikelihoodTask(Task):
    """Learns the sequences of structures; its arguments are the sections of `settings.Likelihood`.

    Raises:
        ConfigError: with everything in them that makes no sense.
    """

    rng_sources = ("torch",)
    volatile_arguments = ("data.structures", "data.validation_structures", "data.test_structures")
    """Folders may be moved: what a checkpoint keeps of their chains tells whether they are the same."""

    _parts: Parts
    _digests: dict[str, str]

    def __init__(self, **sections: Any):
        problems: list[str] = []
        found: settings.Likelihood | None = convert(sections, settings.Likelihood, "", problems)
        if found is None:
            raise ConfigError(problems)
        self.settings = found

    def setup(self, context: RankContext) -> None:
        """Read the structures. Only what is trained on is noisy."""
        data, cache = self.settings.data, self.state.folder
        fields = {"train": "structures", "validation": "validation_structures", "test": "test_structures"}
        known = {
            name: context.on_main(partial(ChainSet, folder, data, 0.0, cache, f"data.{field}"))
            for name, field in fields.items()
            if (folder := getattr(data, field))
        }
        division = divided(known, data, "chains")
        for note in division.notes if context.is_main else ():
            logger.warning("%s", note)
        noisy = known["train"].with_noise(self.settings.model.backbone_noise)
        self._parts = division.of(known)._replace(train=Subset(noisy, division.train))
        self._digests = division.digests

    def build_model(self) -> nn.Module:
        """The network, of the size that was asked for."""
        given = self.settings.model
        return InverseFolding(
            given.hidden_size,
            given.encoder_layers,
            given.decoder_layers,
            given.neighbours,
            given.dropout,
        )

    def build_data(self) -> Splits:
        """Chains to train on, to validate and to test with."""
        return Splits(*self._parts)

    def collate(self, samples: list[Sample]) -> Batch:
        """Side by side, padded."""
        return collated(samples)

    # --- What a checkpoint keeps ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Which chains are trained on and validated with."""
        return {"digests": self._digests}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See that they are those of the checkpoint.

        Raises:
            ConfigError: they are others.
        """
        data = self.settings.data
        field = "validation_structures" if data.validation_structures else "structures"
        given = {
            "train": (f"data.structures: {data.structures} holds other chains", "trained on"),
            "validation": (
                f"data.{field}: {getattr(data, field)} holds other chains to validate with",
                "validated with",
            ),
        }
        see_that_they_are_the_same(state["digests"], self._digests, given)

    # --- What is learned --------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The label-smoothed negative log-likelihood, a mean over designed residues."""
        logits = model(batch.backbones, batch.sequences, batch.order)
        share = self.settings.model.label_smoothing
        total = smoothed_likelihood_loss(logits, batch.sequences, batch.designed, share)
        return Loss(total, batch.designed.sum())

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Sum]:
        """The negative log-likelihood, and how often the likeliest residue is the structure's own.

        The latter where the network is shown the structure's own residues before each: it is not recovery.
        """
        logits: Tensor = model(batch.backbones, batch.sequences, batch.order)
        total = smoothed_likelihood_loss(logits, batch.sequences, batch.designed, 0.0)
        right = (logits.argmax(-1) == batch.sequences) & batch.designed.unsqueeze(1)
        count = batch.designed.sum()
        return {"loss": (total, count), "accuracy/teacher_forced": (right.sum(), count)}

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        """The means, and the perplexity of a residue."""
        means = dict(super().finish(sums))
        if "loss" not in means:  # of no chains there is none
            return means
        return {**means, "perplexity": math.exp(min(means["loss"], 700.0))}

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        """Which share of the residues of some chains comes back where sequences are drawn for them.

        And what there is without a network: the share of the residue that is the most frequent one.
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
        known = native[batch.designed]
        recovered = float((drawn[batch.designed] == known).float().mean())
        most_frequent = float(known.bincount().max() / len(known))
        words = "Native sequence recovery, sampled for %d chains: %.3f; the most frequent residue alone: %.3f"
        logger.info(words, len(native), recovered, most_frequent)
        return {"recovery/sampled": recovered, "recovery/most_frequent": most_frequent}

    # --- For others -------------------------------------------------------------------------------

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        """The model in ProteinMPNN's format."""
        export(model, self.settings.model.backbone_noise, folder, self.state, better=better)


def _some(samples: Subset[Sample]) -> list[Sample]:
    """From all over the set: its files may be sorted."""
    return [samples[index] for index in Permutation(len(samples), 0)[:SAMPLED]]
