"""Which samples train, validate and test: shares of a file, or files of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.samples.batch import Sample
from castoff.trainers.dpo.samples.splitting import divided_by_what_they_share
from castoff.trainers.dpo.settings import Chains, Pairs


class Set(Protocol):
    """The samples of a file or folder."""

    @property
    def digests(self) -> Sequence[str]:
        """A digest of each sample."""

    @property
    def things(self) -> Sequence[Collection[Hashable]]:
        """What each sample may share with others: its structure."""

    @property
    def notes(self) -> Sequence[str]:
        """Warnings about samples that the user may not have meant."""

    def __len__(self) -> int:
        """The number of samples."""


class Division(NamedTuple):
    """Samples by their indices in their sets."""

    train: Sequence[int]
    validation: Sequence[int]
    test: Sequence[int]
    digests: dict[str, str]
    """One digest of the training samples and one of the validation samples, in their order."""
    notes: list[str]
    """Warnings about the sets and their division."""

    def of(self, sets: Mapping[str, Any]) -> Parts:
        """Apply the division to sets of the same lengths."""
        train = sets["train"]
        validation, test = sets.get("validation", train), sets.get("test", train)
        return Parts(Subset(train, self.train), Subset(validation, self.validation), Subset(test, self.test))


class Parts(NamedTuple):
    """The samples for training, validation and test."""

    train: Subset[Sample]
    validation: Subset[Sample]
    test: Subset[Sample]


def divided(sets: Mapping[str, Set], data: Pairs | Chains, what: str) -> Division:
    """Divide the sets train, validation and test. Without a validation set, a share of train is used.

    `what`: what the samples are called in warnings, such as pairs.

    Raises:
        ConfigError: nothing is left to train on.
    """
    train, *others = sets["train"], sets.get("validation"), sets.get("test")
    notes = [note for samples in sets.values() for note in samples.notes]
    share = 0.0 if others[0] is not None else data.validation_share
    train_indices, held_out, apart = divided_by_what_they_share(train.things, share, data.split_seed)
    if not train_indices:
        write = "a smaller share, or 0" if len(train) > 1 else "0, with --set data.validation_share=0,"
        raise ConfigError(
            [
                f"data.validation_share: is {share:g}, and of {len(train):,} {what} leaves none to train "
                f"on; write {write} and validate with other data"
            ]
        )
    if not apart:
        notes.append(
            f"data.validation_share: all {len(train)} {what} share structures with each other, so that "
            "validation says nothing about unseen structures; name separate validation data"
        )
    meant, held = len(train) * share, len(held_out)
    if apart and (held < meant / 2 or (held > 1 and held >= 2 * meant)):
        notes.append(
            f"data.validation_share: {share:g} of {len(train):,} {what} would be {meant:.0f}, but "
            f"{held:,} are held out, because those that share a structure stay together; name separate "
            "validation data instead"
        )
    train_digests = set(train.digests)
    for name, samples in zip(("validation", "test"), others, strict=True):
        repeated = 0 if samples is None else sum(digest in train_digests for digest in samples.digests)
        if repeated and samples is not None:
            notes.append(
                f"{repeated} of the {len(samples)} {what} of the {name} set are also in the training "
                "set, and say nothing about unseen ones"
            )
    validation, test = (range(len(samples)) if samples is not None else [] for samples in others)
    of_validation = train if others[0] is None else others[0]
    digests = {
        "train": _joined(train, train_indices),
        "validation": _joined(of_validation, validation or held_out),
    }
    return Division(train_indices, validation or held_out, test, digests, notes)


def _joined(samples: Set, numbers: Sequence[int]) -> str:
    return hashlib.sha256("".join(samples.digests[number] for number in numbers).encode()).hexdigest()


def see_that_they_are_the_same(
    before: Mapping[str, str], current: Mapping[str, str], fields: Mapping[str, tuple[str, str]]
) -> None:
    """Check by digests that a checkpoint was made with the same data and weights as this training.

    `fields`: for each digest, a text that begins with its field, and what the checkpoint did with its data.

    Raises:
        ConfigError: it was made with other data or weights.
    """
    problems = [
        f"{field} (digest {current[name][:12]}) than those ({before[name][:12]}) that the checkpoint was "
        f"{use}; restore the checkpoint's data, or start over with training.fresh: true (--fresh)"
        for name, (field, use) in fields.items()
        if before[name] != current[name]
    ]
    if problems:
        raise ConfigError(problems)
