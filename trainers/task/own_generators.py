"""Private random generators of a data set, which are not seeded again when a run resumes."""

from __future__ import annotations

import logging
import pickle
import random
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

logger = logging.getLogger(__name__)

_DEEPEST = 4
_MOST = 500
"""The most levels and objects that are searched."""


class Generator(NamedTuple):
    """A private random generator of a data set."""

    name: str
    """The attributes that lead to the generator, such as `MyData.rng`."""
    read: Callable[[], Any]
    write: Callable[[Any], object]

    def state(self) -> bytes:
        """The generator's pickled state."""
        return pickle.dumps(self.read())

    def put_back(self, state: bytes) -> None:
        """Restore the generator's state."""
        self.write(pickle.loads(state))


@contextmanager
def drawing(dataset: Any) -> Iterator[list[str]]:
    """Restore a data set's generators after this context; the list then has the names of those drawn from."""
    before = [(generator, generator.state()) for generator in own_generators(dataset)]
    drew: list[str] = []
    try:
        yield drew
    finally:
        for each, state in before:
            if each.state() != state:
                drew.append(each.name)
                each.put_back(state)


def warn_of_own_generators(name: str, drew: Collection[str]) -> None:
    """Warn that a resumed run will draw other samples than an uninterrupted one, if `drew` has names."""
    if drew:
        logger.warning(
            "build_data's %s draws from %s, its own generator, so a resumed run gets other samples than "
            "one that was not interrupted, and each worker draws the same numbers. Draw from the global "
            "generators of torch, numpy or random, which the trainer seeds before each sample, or make "
            "a generator in __getitem__, from a seed and the index",
            name,
            ", ".join(sorted(drew)),
        )


def own_generators(dataset: Any) -> list[Generator]:
    """The generators in a data set's attributes, and in objects within these."""
    return list(_found(dataset, type(dataset).__name__, 0, set()))


def _found(value: Any, name: str, depth: int, seen: set[int]) -> Iterator[Generator]:
    if id(value) in seen or depth > _DEEPEST or len(seen) > _MOST or isinstance(value, torch.Tensor | type):
        return
    seen.add(id(value))
    generator = known_generator(value, name)
    if generator is not None:
        yield generator
    elif isinstance(value, list | tuple):
        if len(value) <= _MOST and any(hasattr(each, "__dict__") for each in value[:1]):
            for number, each in enumerate(value):
                yield from _found(each, f"{name}[{number}]", depth + 1, seen)
    elif isinstance(value, Mapping):
        if len(value) <= _MOST:
            for key, each in value.items():
                yield from _found(each, f"{name}[{key!r}]", depth + 1, seen)
    else:
        for attribute, each in list(getattr(value, "__dict__", {}).items()):
            yield from _found(each, f"{name}.{attribute}", depth + 1, seen)


def known_generator(value: Any, name: str) -> Generator | None:
    """The value as a Generator of this name; None: it is not a random generator."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        return Generator(name, lambda: value.get_state().numpy(), lambda state: _set(value, state))
    if isinstance(value, random.Random):
        return Generator(name, value.getstate, value.setstate)
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return Generator(name, lambda: bits.state, lambda state: setattr(bits, "state", state))
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return Generator(name, value.get_state, value.set_state)
    return None


def _set(generator: torch.Generator, state: Any) -> None:
    generator.set_state(torch.from_numpy(state.copy()))
