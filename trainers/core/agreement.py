"""That all ranks were told the same: one that was told otherwise would train apart, or wait for ever."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from trainers.core.config import Config
from trainers.core.content import Content
from trainers.core.contract import declared_arguments
from trainers.core.differences import fields, under
from trainers.core.distributed import Place
from trainers.core.fields import ConfigError
from trainers.core.similar_lengths import lengths_of
from trainers.task import Splits, Task

_OWN = {
    "log_level",
    "parallel.master_addr",
    "parallel.master_port",
    "parallel.output_device",
    "parallel.rank",
    "training.path",
    "training.run",
}
"""Fields in which ranks may differ: rank 0's alone counts, or each needs its own. A task's silent arguments
are of them."""

_SHOWN = 8
"""Lines of a message."""


def agree_on_configuration(config: Config, task: Task, place: Place) -> None:
    """See that all ranks were started with the same configuration; all of them must call it.

    Raises:
        ConfigError: they were not; on all ranks.
    """
    own = _OWN | declared_arguments(task, "silent_arguments")
    every = fields(config, place.world_size, task).items()
    told = {name: value for name, value in every if not under(name, own)}
    _agree(told, place, "start all ranks with the same configuration")


def agree_on_sizes(splits: Splits, place: Place) -> None:
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
    _agree(
        sizes, place, "every rank must make the same data sets, of which the trainer deals out the samples"
    )


def _agree(mine: Mapping[str, Any], place: Place, how: str) -> None:
    if not place.distributed or place.world_size == 1:
        return
    main = place.from_main(mine)
    assert isinstance(main, Mapping)
    _refuse(_differences(mine, main, place), place, how)


def agree_on_samples(mine: Mapping[str, Mapping[int, Content]], place: Place) -> None:
    """See that all ranks have read the same: samples by their set's name and their index.

    What one of them has not read is not compared.

    Raises:
        ConfigError: they have not; on all ranks.
    """
    if not place.distributed or place.world_size == 1:
        return
    main = cast("Mapping[str, Mapping[int, Content]]", place.from_main(mine))
    found = [
        f"sample {at} of build_data's {name}: has {here} on rank {place.rank}, but {there} on rank 0"
        for name, samples in mine.items()
        for at, here in samples.items()
        if (there := main.get(name, {}).get(at)) is not None and not here.same(there)
    ]
    how = (
        "every rank must make the same data sets, of which the trainer deals out the samples: seed what "
        "shuffles or draws in build_data (numpy.random.default_rng(0), random.Random(0)), sort what a folder "
        "or a set lists, and do not divide samples by rank"
    )
    _refuse(_the_first(found, sum(map(len, mine.values())), "samples"), place, how)


def agree_on_stream(
    name: str, mine: Sequence[Content], again: Callable[[], Sequence[Content]], place: Place
) -> None:
    """See that the stream `name` begins alike on all ranks; all of them must call it.

    `again` reads the beginning once more, where it does not: what is other each time is not compared.

    Raises:
        ConfigError: it begins otherwise; on all ranks.
    """
    if not place.distributed or place.world_size == 1:
        return
    main = cast("Sequence[Content]", place.from_main(mine))
    other = any(not here.same(there) for here, there in zip(mine, main, strict=False))
    if not place.anywhere(other):
        return
    steady = [here.same(once_more) for here, once_more in zip(mine, again(), strict=False)]
    steady_there = cast("Sequence[bool]", place.from_main(steady))
    found = [
        f"element {at} of the training set {name}: has {here} on rank {place.rank}, but {there} on rank 0"
        for at, (here, there, *both) in enumerate(zip(mine, main, steady, steady_there, strict=False))
        if all(both) and not here.same(there)
    ]
    how = (
        "every rank must get the same elements in the same order, and the trainer deals them out over ranks "
        "and workers. A set that deals them out itself, by RANK or torch.distributed, is dealt out twice, "
        "and most of it never seen: yield all on every rank, or write shard(num_shards=, index=); and seed "
        "what shuffles"
    )
    _refuse(_the_first(found, len(steady), "elements"), place, how)


def _the_first(found: list[str], compared: int, what: str) -> list[str]:
    """One difference as an example of all."""
    if len(found) < 2:
        return found
    return [f"{found[0]}; {len(found)} of {compared} {what} that were compared differ"]


def _differences(mine: Mapping[str, Any], main: Mapping[str, Any], place: Place) -> list[str]:
    return [
        f"{name}: is {_words(name, mine)} on rank {place.rank}, but {_words(name, main)} on rank 0"
        for name in dict.fromkeys([*main, *mine])
        if (name in mine, mine.get(name)) != (name in main, main.get(name))
    ]


def _refuse(found: list[str], place: Place, how: str) -> None:
    """Refuse what any rank has found; all of them must call it."""
    every = place.gather_on_main(found[:_SHOWN])
    place.decided(lambda: _check(every, how))


def _check(every: Sequence[list[str]], how: str) -> None:
    others = [found for found in every if found]
    if others:
        more = f"; {len(others)} ranks differ from rank 0" if len(others) > 1 else ""
        raise ConfigError([*others[0], how + more])


def _words(name: str, told: Mapping[str, Any]) -> str:
    return json.dumps(told[name]) if name in told else "not given"
