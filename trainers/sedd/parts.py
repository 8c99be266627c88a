"""Which proteins train, validate and test: shares of a data file, or files of their own."""

from __future__ import annotations

from typing import NamedTuple

from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import SPLIT, derived
from castoff.trainers.sedd.data import Protein, Proteins, Source
from castoff.trainers.sedd.settings import Data
from castoff.trainers.sedd.store.datafile import store_of
from castoff.trainers.sedd.store.token_store import Filters, TokenStore
from castoff.trainers.sedd.stream import ProteinStream, split_into_blocks
from castoff.trainers.sedd.synthetic import SyntheticProteins
from castoff.trainers.task.splitting import split


class Sources(NamedTuple):
    """The sets of proteins. If validation or test is None, it gets a share of the training set."""

    train: Source
    validation: Source | None = None
    test: Source | None = None

    def digests(self) -> dict[str, str]:
        """The digest, which identifies its proteins, of each set that is not None."""
        return {name: source.digest for name, source in self._asdict().items() if source is not None}


def opened(data: Data, context: RankContext) -> Sources:
    """Open the stores of the data files; rank 0 makes missing stores while the others wait.

    Raises:
        ConfigError: a file cannot be read, or its store cannot be made.
    """
    filters = Filters(min_length=data.min_length, max_unknown=data.max_unknown)

    def store(name: str) -> TokenStore | None:
        datafile: str | None = getattr(data, name)
        if datafile is None:
            return None
        folder = context.on_main(lambda: str(store_of(datafile, filters, field=f"data.{name}")))
        return TokenStore.open(folder)

    train, *others = (store(name) for name in ("datafile", "validation_datafile", "test_datafile"))
    if train is None:
        return Sources(SyntheticProteins(data.synthetic, data.split_seed), *others)
    return Sources(train, *others)


class Parts(NamedTuple):
    """The proteins for training, validation and test."""

    train: Subset[Protein] | ProteinStream
    validation: Subset[Protein]
    test: Subset[Protein]


def divided(sources: Sources, data: Data, validated: int | None = None) -> Parts:
    """Divide the proteins. If validation or test has a file, its share of the training set is trained on.

    `validated`: at most this many proteins of the validation set are used; None: all.

    Raises:
        ConfigError: the shares are negative or add up to more than 1, or synthetic proteins are to be read as
            a stream.
    """
    separate = sources[1:]
    held_out = [
        0.0 if source is not None else share for share, source in zip(data.split[1:], separate, strict=True)
    ]
    shares = [data.split[0] + sum(data.split[1:]) - sum(held_out), *held_out]
    train: Subset[Protein] | ProteinStream
    if data.streaming:
        train, others = split_into_blocks(_a_store(sources.train), data.max_length, shares, data.split_seed)
    else:
        train, *others = split(Proteins(sources.train, data.max_length), shares, data.split_seed)
    validation, test = (
        share if source is None else _whole(source, data)
        for share, source in zip(others, separate, strict=True)
    )
    return Parts(train, Subset(validation.dataset, validation.indices[:validated]), test)


def _whole(source: Source, data: Data) -> Subset[Protein]:
    """All proteins of a file, in random order: in a sorted file, the first ones do not represent the rest."""
    order = Permutation(len(source), derived(SPLIT, data.split_seed))
    return Subset(Proteins(source, data.max_length), order)


def doubts(parts: Parts, sources: Sources, data: Data) -> list[str]:
    """Warnings about parts that the user may not have meant."""
    warnings = []
    for name, share, source, part in zip(
        ("validation", "test"), data.split[1:], sources[1:], parts[1:], strict=True
    ):
        if source is None and share and not len(part):
            warnings.append(
                f"data.split: {share:g} of {len(sources.train)} proteins are no whole protein, so there "
                f"is nothing for {name}; write a larger share"
            )
        if source is not None and source.digest == sources.train.digest:
            warnings.append(
                f"data.{name}_datafile: holds the same proteins as data.datafile, so that {name} says "
                "nothing about unseen ones; name other proteins, or leave the field out: then a share "
                "is held out"
            )
    return warnings


def _a_store(source: Source) -> TokenStore:
    if not isinstance(source, TokenStore):
        raise ConfigError(
            ["data.streaming: is true, but synthetic proteins are not on disk; name a data.datafile"]
        )
    return source
