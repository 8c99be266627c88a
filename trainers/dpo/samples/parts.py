"""Which samples train, validate and test: a share of some, or a file of their own."""

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
    """Samples of a file or folder."""

    @property
    def digests(self) -> Sequence[str]:
        """A digest of each sample."""

    @property
    def things(self) -> Sequence[Collection[Hashable]]:
        """What each has that others may have, too: its structure."""

    @property
    def notes(self) -> Sequence[str]:
        """What somebody may not have meant by these samples."""

    def __len__(self) -> int:
        """How many."""


class Division(NamedTuple):
    """Samples by their numbers in their sets."""

    train: Sequence[int]
    validation: Sequence[int]
    test: Sequence[int]
    digests: dict[str, str]
    """Digests of the training and the validation samples, in their order."""
    notes: list[str]
    """What somebody may not have meant by all this."""

    def of(self, sets: Mapping[str, Any]) -> Parts:
        """The samples of sets that are as long as those that were divided."""
        train = sets["train"]
        validation, test = sets.get("validation", train), sets.get("test", train)
        return Parts(Subset(train, self.train), Subset(validation, self.validation), Subset(test, self.test))


class Parts(NamedTuple):
    """The samples of each."""

    train: Subset[Sample]
    validation: Subset[Sample]
    test: Subset[Sample]


def divided(sets: Mapping[str, Set], data: Pairs | Chains, what: str) -> Division:
    """Divide sets by their names, train, validation and test; without validation it has a share of train.

    `what` they are of, for the notes.

    Raises:
        ConfigError: nothing is left to train on.
    """
    train, *others = sets["train"], sets.get("validation"), sets.get("test")
    notes = [note for each in sets.values() for note in each.notes]
    share = 0.0 if others[0] is not None else data.validation_share
    most, held_out, apart = divided_by_what_they_share(train.things, share, data.split_seed)
    if not most:
        write = "a smaller share, or 0" if len(train) > 1 else "0, with --set data.validation_share=0,"
        raise ConfigError(
            [
                f"data.validation_share: is {share:g}, and of {len(train):,} {what} leaves none to train on; "
                f"write {write} and validate with others"
            ]
        )
    if not apart:
        notes.append(
            f"data.validation_share: all {len(train)} {what} share structures with each other, so that what "
            "is validated with tells nothing of structures that were never seen; name some of their own"
        )
    meant, held = len(train) * share, len(held_out)
    if apart and (held < meant / 2 or (held > 1 and held >= 2 * meant)):
        notes.append(
            f"data.validation_share: {share:g} of {len(train):,} {what} would be {meant:.0f}, but {held:,} "
            "are held out, because those that share a structure stay together; name some of their own instead"
        )
    known = set(train.digests)
    for name, each in zip(("validation", "test"), others, strict=True):
        again = 0 if each is None else sum(digest in known for digest in each.digests)
        if again and each is not None:
            notes.append(
                f"{again} of the {len(each)} {what} of the {name} set are trained on, too, and tell nothing "
                "of others"
            )
    validation, test = (range(len(each)) if each is not None else [] for each in others)
    of_validation = train if others[0] is None else others[0]
    digests = {
        "train": _joined(train, most),
        "validation": _joined(of_validation, validation or held_out),
    }
    return Division(most, validation or held_out, test, digests, notes)


def _joined(samples: Set, numbers: Sequence[int]) -> str:
    return hashlib.sha256("".join(samples.digests[number] for number in numbers).encode()).hexdigest()


def see_that_they_are_the_same(
    before: Mapping[str, str], now: Mapping[str, str], given: Mapping[str, tuple[str, str]]
) -> None:
    """See that a checkpoint was made with the same as what there is now, by their digests.

    `given`: by the digests' names, which field has what, and what became of those of the checkpoint.

    Raises:
        ConfigError: it was made with others.
    """
    problems = [
        f"{field} (digest {now[name][:12]}) than those ({before[name][:12]}) that the checkpoint was {what}; "
        "bring these back, or start over with training.fresh: true (--fresh)"
        for name, (field, what) in given.items()
        if before[name] != now[name]
    ]
    if problems:
        raise ConfigError(problems)
