"""Validation and test sets that can only be iterated: read once, and held in memory from then on.

Only then does every sample count once on any number of ranks, and is each batch the same each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from castoff.trainers.data.batches import drawn_from
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import SAMPLE, Stream, seed_all, undisturbed
from castoff.trainers.task import Splits

logger = logging.getLogger(__name__)


def held(splits: Splits, seed: int, context: RankContext) -> Splits:
    """The same splits, but validation and test sets have a length: every rank first reads an iterable set
    in full.
    """
    whole = {}
    for name in ("validation", "test"):
        part = getattr(splits, name)
        if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")):
            whole[name] = list(_elements(part, seed))
            if context.is_main:
                words = "build_data's %s is iterable: its %d samples were read, and are held in memory"
                logger.info(words, name, len(whole[name]))
    return splits._replace(**whole)


def _elements(stream: Any, seed: int) -> Iterator[Any]:
    """Read the elements, each with its own random seed, as in map-style sets."""
    generators = drawn_from(stream)
    seeds = Stream(SAMPLE, seed, 0)
    if callable(getattr(stream, "set_epoch", None)):
        stream.set_epoch(0)
    with undisturbed():
        seed_all(seeds.seed(), generators)
        elements = iter(stream)
        number = 0
        while True:
            seed_all(seeds.seed(number), generators)
            try:
                element = next(elements)
            except StopIteration:
                return
            yield element
            number += 1
