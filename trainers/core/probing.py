"""A few samples of each data set, read before training as training reads them.

They tell whether all ranks have the same sets, which sizes alone do not, and whether a set draws from a
generator of its own. A batch of some samples, and one of the same samples twice, tell of a loss whether it is
a sum (`additivity`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
from torch.utils.data import Dataset, IterableDataset, Sampler

from trainers.core.agreement import agree_on_samples
from trainers.core.config import Config, Evaluation, Training
from trainers.core.content import Content, content
from trainers.core.data import Seeded
from trainers.core.distributed import Place
from trainers.core.loading import Collate, Pair, draws, iterate, loader
from trainers.core.own_generators import drawing, warn_of_own_generators
from trainers.core.randomness import ORDER, derived, undisturbed
from trainers.task import Splits

_SAMPLES = 4
"""Of each set, and of the batch that is read twice over."""

_LONG = 10.0
"""Seconds of reading, after which a set is left alone: what was not read is not compared."""


def probed(splits: Splits, config: Config, place: Place, collate: Collate) -> Pair | None:
    """Read the sets, and see that all ranks have the same; all of them must call it.

    Returns the training set's batches for `additivity`, where it has a length.

    Raises:
        ConfigError: the ranks have other samples; on all of them.
    """
    contents: dict[str, dict[int, Content]] = {}
    pair = None
    settings: dict[str, Training | Evaluation] = {
        "train": config.training,
        "validation": config.validation,
        "test": config.testing,
    }
    for name, part in splits._asdict().items():
        if isinstance(part, IterableDataset) or not hasattr(part, "__len__") or not len(part):
            continue
        seed, length = config.training.seed, len(part)
        wanted = [_Wanted([at], batch=False) for at in _chosen(length, seed)]
        some = min(_SAMPLES, config.training.batch_size // 2)
        if name == "train" and some:
            indices = [derived(ORDER, seed, number, 1) % length for number in range(some)]
            wanted += [_Wanted(indices, batch=True), _Wanted([*indices, *indices], batch=True)]
        found = _read(part, wanted, settings[name], config.training, collate)
        samples = {want.indices[0]: each for want, each in zip(wanted, found, strict=True) if not want.batch}
        contents[name] = {at: each.given for at, each in samples.items() if each.given is not None}
        drew = {which for each in samples.values() for which in each.drew}
        if place.is_main:
            warn_of_own_generators(name, drew)
        batches = [each.given for want, each in zip(wanted, found, strict=True) if want.batch]
        if batches and all(each is not None for each in batches):
            pair = Pair(batches[0], batches[1], some)
    agree_on_samples(contents, place)
    return pair


class _Wanted(NamedTuple):
    """Samples to be read."""

    indices: list[int]
    batch: bool
    """Whether as a batch; else the content of one is wanted."""


class _Found(NamedTuple):
    """What a reading has given."""

    given: Any
    """None: it could not be read, which is for training to say; or is another one each time."""
    drew: Sequence[str] = ()
    """Generators of the set's own from which it was drawn."""


def _chosen(length: int, seed: int) -> list[int]:
    """Which samples are looked at: the first, the last, and others."""
    others = (derived(ORDER, seed, number) % length for number in range(_SAMPLES - 2))
    return sorted({0, length - 1, *others})


def _read(
    part: Any,
    wanted: Sequence[_Wanted],
    settings: Training | Evaluation,
    training: Training,
    collate: Collate,
) -> list[_Found]:
    """In a worker, where training has some: a set may open files when it is first read, and may not be forked
    with them open."""
    seeded = Seeded(part, training.seed, draws(collate))
    fewer = msgspec.structs.replace(
        settings,
        num_workers=min(settings.num_workers, 1),
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory=False,
    )
    # What is wrong with a set, training will meet itself, and say where.
    made = loader(_Looked(seeded, collate), fewer, training, cast("Sampler[Any]", wanted), _only)
    with undisturbed():
        return list(iterate(made))


def _only(found: list[_Found]) -> _Found:
    return found[0]


class _Looked(Dataset[Any]):
    """A data set that is asked for what a few of its samples hold."""

    def __init__(self, seeded: Seeded, collate: Collate):
        self._seeded = seeded
        self._collate = collate
        self._until: float | None = None

    def __getitems__(self, wanted: _Wanted) -> list[_Found]:
        """One answer."""
        if self._until is None:
            self._until = time.monotonic() + _LONG
        if time.monotonic() > self._until:
            return [_Found(None)]
        try:
            with drawing(self._seeded.dataset) as drew:
                given = self._batch(wanted.indices) if wanted.batch else self._content(wanted.indices)
        except Exception:  # noqa: BLE001  # whatever it is, training meets it, too
            return [_Found(None)]
        return [_Found(given, drew)]

    def _batch(self, indices: list[int]) -> Any:
        return self._collate(self._seeded.__getitems__((0, indices)))

    def _content(self, indices: list[int]) -> Content | None:
        first, again = (content(self._seeded.__getitems__((0, indices))[0]) for _ in range(2))
        return first if first.same(again) else None
