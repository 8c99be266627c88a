"""Inverse folding tuned by preferences: the task, its reference, and its evaluation."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo import settings
from castoff.trainers.dpo.base_model import base_model
from castoff.trainers.dpo.export import export
from castoff.trainers.dpo.loss import (
    CHOSEN,
    CHOSEN_TO_REFERENCE,
    entropy,
    log_probabilities,
    metrics,
    preference_loss,
)
from castoff.trainers.dpo.network.weights import Loaded
from castoff.trainers.dpo.reference import (
    Conditions,
    Referenced,
    frozen,
    reference_of,
    weights_digest,
)
from castoff.trainers.dpo.samples.batch import Batch, Sample
from castoff.trainers.dpo.samples.data import PairSet, Reordered, collated
from castoff.trainers.dpo.samples.parts import Parts, divided, see_that_they_are_the_same
from castoff.trainers.task import Loss, Splits, Sum, Task

logger = logging.getLogger(__name__)


class DpoTask(Task):
    """Learns which of two sequences is the better one; its arguments are the sections of `settings.Dpo`.

    The policy is the base model, and trains without dropout, so before the first step it equals the
    reference.

    Raises:
        ConfigError: lists everything in the arguments that makes no sense.
    """

    rng_sources = ()
    volatile_arguments = (
        *("data.train_data", "data.val_data", "data.test_data", "data.structures"),
        *("base_model.dir", "base_model.name"),
    )
    """Files may be moved: the digests in a checkpoint show whether pairs and weights are the same."""

    _base: Loaded
    _frozen: nn.Module | None = None
    """The reference, if training needs it because decoding orders change."""
    _parts: Parts
    _digests: dict[str, str]

    def __init__(self, **sections: Any):
        problems: list[str] = []
        read: settings.Dpo | None = convert(sections, settings.Dpo, "", problems)
        if read is None:
            raise ConfigError(problems)
        if read.preference.label_smoothing and read.preference.loss not in ("sigmoid", "robust"):
            raise ConfigError(
                [
                    f"preference.label_smoothing: is {read.preference.label_smoothing:g}, but "
                    f"preference.loss: {read.preference.loss} does not use it; drop it, or use sigmoid "
                    "or robust"
                ]
            )
        self.settings = read

    def setup(self, context: RankContext) -> None:
        """Read the base model and the pairs, and read or compute the reference's log-probabilities."""
        self._base = context.on_main(lambda: base_model(self.settings.base_model))
        weights = weights_digest(self._base.model)
        temperature = self.settings.preference.temperature
        conditions = Conditions(weights, temperature, self.state.precision, context.device.type)
        data, cache = self.settings.data, self.state.folder
        files = context.on_main(partial(_files, data))
        sets = {
            name: context.on_main(partial(PairSet, file, data, self.state.seed, cache))
            for name, file in files.items()
        }
        # Before the reference is computed, which takes long, so that all mistakes in the files are reported
        # first.
        division = divided(sets, data, "pairs")
        for note in division.notes if context.is_main else ():
            logger.warning("%s", note)
        referenced: dict[str, Referenced] = {}
        for name, pairs in sets.items():
            log_probabilities = reference_of(
                pairs,
                self._reference,
                conditions,
                context,
                beside=files[name],
                cache=cache,
                collate=collated,
                autocast=self.state.autocast,
            )
            referenced[name] = Referenced(pairs, log_probabilities)
        self._parts = division.of(referenced)
        if self.settings.preference.decoding_order == "epoch":
            self._parts = self._parts._replace(train=Subset(Reordered(sets["train"]), division.train))
            self._frozen = frozen(self._reference(), context.device)
        self._digests = {"base_model": weights, **division.digests}

    def _reference(self) -> nn.Module:
        """A copy of the base model, for the reference: the base model itself becomes the policy."""
        return copy.deepcopy(self._base.model)

    def build_model(self) -> nn.Module:
        """The base model, which has no dropout."""
        return self._base.model

    def build_data(self) -> Splits:
        """The pairs for training, validation and test."""
        return Splits(*self._parts)

    def collate(self, samples: list[Sample]) -> Batch:
        """Pad samples to a batch."""
        return collated(samples)

    # --- What a checkpoint keeps ------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The digests of the training and validation pairs, and of the base model's weights."""
        return {"digests": self._digests}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that the pairs and the base model are the checkpoint's.

        Raises:
            ConfigError: they differ.
        """
        data, base = self.settings.data, self.settings.base_model
        validated = ("val_data", data.val_data) if data.val_data else ("train_data", data.train_data)
        fields = {
            "train": (f"data.train_data: {data.train_data} holds other pairs", "trained on"),
            "validation": (
                "data.{}: {} holds other pairs to validate with".format(*validated),
                "validated with",
            ),
            "base_model": (f"base_model.name: {base.name} in {base.dir} has other weights", "begun from"),
        }
        see_that_they_are_the_same(state["digests"], self._digests, fields)

    # --- What is learned --------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """The loss of preferences, a mean over pairs, and the pairs' metrics under TRL's names."""
        if self._frozen is not None:
            batch = batch._replace(reference=self._computed(self._frozen, batch))
        logits, policy = self._policy(model, batch)
        losses, values = self._of_pairs(logits, policy, batch)
        return Loss(losses.sum(), None, {name: value.sum() for name, value in values.items()})

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Sum]:
        """Sums of the loss, the pairs' metrics, the policy's entropy, and the likelihood of chosen sequences.

        The last is the log-likelihood divided by the reference's: 1.05 if it has fallen by 5 %.
        """
        logits, policy = self._policy(model, batch)
        losses, values = self._of_pairs(logits, policy, batch)
        values["entropy"] = entropy(logits, batch.designed, self.settings.preference.temperature)
        return {
            "loss": (losses.sum(), None),
            **{name: (value.sum(), None) for name, value in values.items()},
            CHOSEN_TO_REFERENCE: (-policy[:, CHOSEN].sum(), -batch.reference[:, CHOSEN].sum()),
        }

    def _policy(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits, and the log-probabilities (batch, 2) of the sequences."""
        logits: Tensor = model(batch.backbones, batch.sequences, batch.order)
        temperature = self.settings.preference.temperature
        return logits, log_probabilities(logits, batch.sequences, batch.designed, temperature)

    @torch.no_grad()
    def _computed(self, reference: nn.Module, batch: Batch) -> Tensor:
        """The reference's log-probabilities (batch, 2), in the batch's decoding orders."""
        return self._policy(reference, batch)[1]

    def _of_pairs(self, logits: Tensor, policy: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and metrics of each pair."""
        preference = self.settings.preference
        losses = preference_loss(policy, batch.reference, batch.designed.sum(1), preference)
        values = metrics(policy, batch.reference, preference.beta)
        if preference.diversity_lambda:
            values["entropy"] = entropy(logits, batch.designed, preference.temperature)
            losses = losses - preference.diversity_lambda * values["entropy"]
        return losses, {name: value.detach() for name, value in values.items()}

    # --- For others -------------------------------------------------------------------------------

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        """Write the policy in ProteinMPNN's format."""
        export(model, self._base.noise_level, folder, self.state, better=better)


def _files(data: settings.Pairs) -> dict[str, Path]:
    """The files of pairs that the settings name.

    Raises:
        ConfigError: some files do not exist, or cannot be read.
    """
    fields = {"train": "train_data", "validation": "val_data", "test": "test_data"}
    paths = {name: getattr(data, field) for name, field in fields.items()}
    files = {name: expanded(file, f"data.{fields[name]}") for name, file in paths.items() if file}
    problems = []
    for name, file in files.items():
        try:
            file.open("rb").close()
        except OSError as error:
            problems.append(f"data.{fields[name]}: {str(file)!r} cannot be read: {error.strerror}")
    if problems:
        raise ConfigError(problems)
    return files
