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
    """Where proteins come from; None: from a share of the training's."""

    train: Source
    validation: Source | None = None
    test: Source | None = None

    def digests(self) -> dict[str, str]:
        """A digest of each set that there is: only the same proteins have the same."""
        return {name: each.digest for name, each in self._asdict().items() if each is not None}


def opened(data: Data, context: RankContext) -> Sources:
    """The stores of the data files, which rank 0 makes of them while the others wait.

    Raises:
        ConfigError: a file cannot be read, or its store cannot be made.
    """
    filters = Filters(min_length=data.min_length, max_unknown=data.max_unknown)

    def store(name: str) -> TokenStore | None:
        datafile: str | None = getattr(data, name)
        if datafile is None:
            return None
        made = context.on_main(lambda: str(store_of(datafile, filters, field=f"data.{name}")))
        return TokenStore.open(made)

    train, *others = (store(name) for name in ("datafile", "validation_datafile", "test_datafile"))
    if train is None:
        return Sources(SyntheticProteins(data.synthetic, data.split_seed), *others)
    return Sources(train, *others)


class Parts(NamedTuple):
    """The proteins of each."""

    train: Subset[Protein] | ProteinStream
    validation: Subset[Protein]
    test: Subset[Protein]


def divided(sources: Sources, data: Data, validated: int | None = None) -> Parts:
    """The proteins of each; the share of what has a file of its own is trained on.

    `validated`: how many proteins of the validation set count, at most; None: all.

    Raises:
        ConfigError: the shares make no whole, or made-up proteins are to be read as a stream.
    """
    own = sources[1:]
    kept = [0.0 if each is not None else share for share, each in zip(data.split[1:], own, strict=True)]
    shares = [data.split[0] + sum(data.split[1:]) - sum(kept), *kept]
    train: Subset[Protein] | ProteinStream
    if data.streaming:
        train, others = split_into_blocks(_a_store(sources.train), data.max_length, shares, data.split_seed)
    else:
        train, *others = split(Proteins(sources.train, data.max_length), shares, data.split_seed)
    validation, test = (
        share if each is None else _whole(each, data) for share, each in zip(others, own, strict=True)
    )
    return Parts(train, Subset(validation.dataset, validation.indices[:validated]), test)


def _whole(source: Source, data: Data) -> Subset[Protein]:
    """All proteins of a file, in an order that we draw: if the file is sorted, its first proteins say
    little about the rest."""
    order = Permutation(len(source), derived(SPLIT, data.split_seed))
    return Subset(Proteins(source, data.max_length), order)


def doubts(parts: Parts, sources: Sources, data: Data) -> list[str]:
    """What somebody may not have meant by these parts."""
    found = []
    for name, share, own, part in zip(
        ("validation", "test"), data.split[1:], sources[1:], parts[1:], strict=True
    ):
        if own is None and share and not len(part):
            found.append(
                f"data.split: {share:g} of {len(sources.train)} proteins are none, so that {name} has "
                "nothing to judge by; write a larger share"
            )
        if own is not None and own.digest == sources.train.digest:
            found.append(
                f"data.{name}_datafile: holds the very proteins of data.datafile, so that {name} tells "
                "nothing of unseen ones; name other proteins, or leave it out, and a share is held out"
            )
    return found


def _a_store(source: Source) -> TokenStore:
    if not isinstance(source, TokenStore):
        raise ConfigError(
            ["data.streaming: is true, but synthetic proteins are not on disk; name a data.datafile"]
        )
    return source
