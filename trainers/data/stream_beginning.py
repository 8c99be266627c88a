"""Records the first elements of a stream in the worker that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from castoff.trainers.data.batches import Collate, Pair
from castoff.trainers.data.sample_content import Content, content
from castoff.trainers.task.own_generators import own_generators

_ELEMENTS = 4


class Beginning(NamedTuple):
    """The beginning of one worker's stream."""

    contents: list[Content]
    """Contents of the first elements of the stream, or of shard 0 if the data set shards itself."""
    drew: list[str]
    """The data set's private generators that were used."""
    pair: Pair | None
    """A pair of batches with which the loss is checked."""


class Look:
    """Records elements until the first batch is complete."""

    def __init__(self, dataset: Any):
        self._before = [(generator, generator.state()) for generator in own_generators(dataset)]
        self._contents: list[Content] = []

    def passing(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Yield the elements, recording the first ones."""
        for element in islice(elements, _ELEMENTS):
            self._contents.append(content(element))
            yield element
        yield from elements

    def read(self, first_shard: Callable[[], Iterable[Any]]) -> None:
        """Record the first elements of a shard that each rank opens only for this."""
        try:
            self._contents = [content(each) for each in islice(iter(first_shard()), _ELEMENTS)]
        except Exception:  # noqa: BLE001  # this rank's own shard will show the same error
            self._contents = []

    def beginning(self, batch: list[Any], collate: Collate) -> Beginning:
        """Everything recorded, with a pair made from the first batch."""
        drew = [generator.name for generator, state in self._before if generator.state() != state]
        samples = batch[: min(_ELEMENTS, len(batch) // 2)]
        pair = None
        if samples:
            try:
                pair = Pair(collate(samples), collate([*samples, *samples]), len(samples))
            except Exception:  # noqa: BLE001  # the task cannot collate so few samples
                pair = None
        return Beginning(self._contents, drew, pair)
