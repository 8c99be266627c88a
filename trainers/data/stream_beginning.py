"""What the beginning of a stream shows, looked at in the worker that reads it."""

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
    """Contents of the stream's first elements, which every rank reads, or of the first shard's."""
    drew: list[str]
    """Generators of the set's own that have moved."""
    pair: Pair | None
    """For a look at the loss."""


class Look:
    """Sees the elements pass, until the first batch is there."""

    def __init__(self, dataset: Any):
        self._before = [(generator, generator.state()) for generator in own_generators(dataset)]
        self._contents: list[Content] = []

    def passing(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Pass elements on."""
        for element in islice(elements, _ELEMENTS):
            self._contents.append(content(element))
            yield element
        yield from elements

    def read(self, first_shard: Callable[[], Iterable[Any]]) -> None:
        """The first elements of a shard that each rank opens for this alone."""
        try:
            self._contents = [content(each) for each in islice(iter(first_shard()), _ELEMENTS)]
        except Exception:  # noqa: BLE001  # what is wrong with the set, its own shard shows as well
            self._contents = []

    def beginning(self, batch: list[Any], collate: Collate) -> Beginning:
        """All that was seen, with the first batch."""
        drew = [each.name for each, state in self._before if each.state() != state]
        samples = batch[: min(_ELEMENTS, len(batch) // 2)]
        pair = None
        if samples:
            try:
                pair = Pair(collate(samples), collate([*samples, *samples]), len(samples))
            except Exception:  # noqa: BLE001  # it makes none of so few
                pair = None
        return Beginning(self._contents, drew, pair)
