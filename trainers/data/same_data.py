"""Checks that all ranks have the same data sets: sizes, samples, and the beginning of a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from castoff.trainers.data.length_batching import lengths_of
from castoff.trainers.data.sample_content import Content
from castoff.trainers.distributed.agreement import agree, refuse
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task import Splits


def agree_on_sizes(splits: Splits, context: RankContext) -> None:
    """See that the task has made data sets alike on all ranks; all of them must call it.

    Of the same sizes, that is, and of samples as long, where that decides who gets which.

    Raises:
        ConfigError: it has not; on all ranks.
    """
    sizes: dict[str, Any] = {}
    for name, part in splits._asdict().items():
        if not (hasattr(part, "__getitem__") and hasattr(part, "__len__")):
            continue
        sizes[f"samples of build_data's {name}"] = len(part)
        lengths = lengths_of(part)
        if lengths is not None:
            digest = hashlib.sha256(lengths.numpy().tobytes()).hexdigest()
            sizes[f"SHA-256 of the lengths of build_data's {name}"] = digest
    agree(
        sizes, context, "every rank must make the same data sets, of which the trainer deals out the samples"
    )


def agree_on_samples(mine: Mapping[str, Mapping[int, Content]], context: RankContext) -> None:
    """See that all ranks have read the same: samples by their set's name and their index.

    What one of them has not read is not compared.

    Raises:
        ConfigError: they have not; on all ranks.
    """
    if not context.distributed or context.world_size == 1:
        return
    main = cast("Mapping[str, Mapping[int, Content]]", context.from_main(mine))
    found = [
        f"sample {at} of build_data's {name}: has {here} on rank {context.rank}, but {there} on rank 0"
        for name, samples in mine.items()
        for at, here in samples.items()
        if (there := main.get(name, {}).get(at)) is not None and not here.same(there)
    ]
    how = (
        "every rank must make the same data sets, of which the trainer deals out the samples: seed what "
        "shuffles or draws in build_data (numpy.random.default_rng(0), random.Random(0)), sort what a folder "
        "or a set lists, and do not divide samples by rank"
    )
    refuse(_the_first(found, sum(map(len, mine.values())), "samples"), context, how)


def agree_on_stream(
    name: str, mine: Sequence[Content], again: Callable[[], Sequence[Content]], context: RankContext
) -> None:
    """See that the stream `name` begins alike on all ranks; all of them must call it.

    `again` reads the beginning once more, where it does not: what is other each time is not compared.

    Raises:
        ConfigError: it begins otherwise; on all ranks.
    """
    if not context.distributed or context.world_size == 1:
        return
    main = cast("Sequence[Content]", context.from_main(mine))
    other = any(not here.same(there) for here, there in zip(mine, main, strict=False))
    if not context.anywhere(other):
        return
    steady = [here == once_more for here, once_more in zip(mine, again(), strict=False)]
    steady_there = cast("Sequence[bool]", context.from_main(steady))
    found = [
        f"element {at} of the training set {name}: has {here} on rank {context.rank}, but {there} on rank 0"
        for at, (here, there, *both) in enumerate(zip(mine, main, steady, steady_there, strict=False))
        if all(both) and not here.same(there)
    ]
    how = (
        "every rank must get the same elements in the same order, and the trainer deals them out over ranks "
        "and workers. A set that deals them out itself, by RANK or torch.distributed, is dealt out twice, "
        "and most of it never seen: yield all on every rank, or write shard(num_shards=, index=); and seed "
        "what shuffles"
    )
    refuse(_the_first(found, len(steady), "elements"), context, how)


def _the_first(found: list[str], compared: int, what: str) -> list[str]:
    """One difference as an example of all."""
    if len(found) < 2:
        return found
    return [f"{found[0]}; {len(found)} of {compared} {what} that were compared differ"]
