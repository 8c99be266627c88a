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
    """Check that the task made data sets of the same size on all ranks; all ranks must call it.

    If the sets have `lengths`, which decide which rank gets which sample, these are compared, too.

    Raises:
        ConfigError: it did not; raised on all ranks.
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
    agree(sizes, context, "every rank must build the same data sets; the trainer distributes their samples")


def agree_on_samples(mine: Mapping[str, Mapping[int, Content]], context: RankContext) -> None:
    """Check that all ranks have read the same samples, given by their set's name and their index.

    Samples that this rank or rank 0 has not read are not compared.

    Raises:
        ConfigError: they differ; raised on all ranks.
    """
    if not context.distributed or context.world_size == 1:
        return
    main = cast("Mapping[str, Mapping[int, Content]]", context.from_main(mine))
    differences = [
        f"sample {at} of build_data's {name}: has {here} on rank {context.rank}, but {there} on rank 0"
        for name, samples in mine.items()
        for at, here in samples.items()
        if (there := main.get(name, {}).get(at)) is not None and not here.same(there)
    ]
    how = (
        "every rank must build the same data sets; the trainer distributes their samples. Seed "
        "everything that shuffles or draws in build_data (numpy.random.default_rng(0), "
        "random.Random(0)), sort what is listed from a folder or a set, and do not divide samples by "
        "rank"
    )
    refuse(_the_first(differences, sum(map(len, mine.values())), "samples"), context, how)


def agree_on_stream(
    name: str, mine: Sequence[Content], again: Callable[[], Sequence[Content]], context: RankContext
) -> None:
    """Check that the stream `name` begins with the same elements on all ranks; all ranks must call it.

    If it does not, `again` reads the beginning once more, and elements that differ each time are not
    compared.

    Raises:
        ConfigError: its beginning differs; raised on all ranks.
    """
    if not context.distributed or context.world_size == 1:
        return
    main = cast("Sequence[Content]", context.from_main(mine))
    other = any(not here.same(there) for here, there in zip(mine, main, strict=False))
    if not context.anywhere(other):
        return
    steady = [here == once_more for here, once_more in zip(mine, again(), strict=False)]
    steady_there = cast("Sequence[bool]", context.from_main(steady))
    differences = [
        f"element {at} of the training set {name}: has {here} on rank {context.rank}, but {there} on rank 0"
        for at, (here, there, *both) in enumerate(zip(mine, main, steady, steady_there, strict=False))
        if all(both) and not here.same(there)
    ]
    how = (
        "every rank must get the same elements in the same order; the trainer distributes them among "
        "ranks and workers. If the set distributes them itself, by RANK or torch.distributed, most of "
        "them are never used: yield all elements on every rank, or define shard(num_shards=, index=); "
        "and seed everything that shuffles"
    )
    refuse(_the_first(differences, len(steady), "elements"), context, how)


def _the_first(differences: list[str], compared: int, what: str) -> list[str]:
    """The first of the differences, with their number."""
    if len(differences) < 2:
        return differences
    return [f"{differences[0]}; {len(differences)} of {compared} {what} that were compared are different"]
