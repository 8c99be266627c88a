"""A few samples of each data set, read before training as training reads them.

They tell whether all ranks have the same sets, which sizes alone do not, and whether a set draws from a
generator of its own. A batch of some samples, and one of the same samples twice, tell of a loss whether it is
a sum (`additivity`); the first batches of the other sets, whether they can be judged by (`first_evaluation`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

from castoff.trainers.configuration.config import Config, Evaluation, Training
from castoff.trainers.data.batches import Batch, Collate, FirstBatch, Pair, draws, iterate, loader
from castoff.trainers.data.loaders import Seeded, evaluation_order
from castoff.trainers.data.same_data import agree_on_samples
from castoff.trainers.data.sample_content import Content, content
from castoff.trainers.distributed.private_torch import ExceptionWrapper
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import EVALUATION, ORDER, Stream, derived, undisturbed
from castoff.trainers.task import Splits
from castoff.trainers.task.own_generators import drawing, warn_of_own_generators

_SAMPLES = 4
"""Samples that are read of each set, and of the batch that is read twice."""

_LONG = 10.0
"""Seconds of reading, after which a set is left alone: what was not read is not compared. Neither is a batch
read that would take as long."""


class Probed(NamedTuple):
    """What was read; nothing of a set without a length, or of one that takes long."""

    pair: Pair | None
    """A batch of the training set, once and twice."""
    first: dict[str, FirstBatch]
    """First batches of the validation and the test set, by name."""


def probed(splits: Splits, config: Config, context: RankContext, collate: Collate) -> Probed:
    """Read the sets, and see that all ranks have the same; all of them must call it.

    Nothing is read where `training.check_first_step` is false.

    Raises:
        ConfigError: the ranks have other samples; on all of them.
        Exception: the first batch of the validation set cannot be read.
    """
    if not config.training.check_first_step:
        return Probed(None, {})
    settings: dict[str, Training | Evaluation] = {
        "train": config.training,
        "validation": config.validation,
        "test": config.testing,
    }
    sets = {
        name: _Set(name, part, settings[name], config.training, collate)
        for name, part in splits._asdict().items()
        if not isinstance(part, IterableDataset) and hasattr(part, "__len__") and len(part)
    }
    for each in sets.values():
        each.read()
    if context.is_main:
        for name, each in sets.items():
            warn_of_own_generators(name, each.drew)
    agree_on_samples({name: each.contents for name, each in sets.items()}, context)
    pair = sets["train"].pair if "train" in sets else None
    return Probed(pair, {name: each.first for name, each in sets.items() if each.first is not None})


class _Wanted(NamedTuple):
    """Samples to be read."""

    indices: list[int]
    batch: bool = True
    """Whether as a batch; else the content of one is wanted."""
    due: bool = False
    """Whether an error in reading them is reported now, because training would only meet it late."""


class _Found(NamedTuple):
    """The result of reading a set."""

    given: Any
    """None: it could not be read, which is for training to say; or is another one each time."""
    drew: Sequence[str] = ()
    """Generators of the set's own from which it was drawn."""


class _Set:
    """A data set of which some samples are read."""

    def __init__(
        self, name: str, part: Any, settings: Training | Evaluation, training: Training, collate: Collate
    ):
        self._name = name
        self._part = part
        self._settings = settings
        self._training = training
        self._collate = collate
        self.contents: dict[int, Content] = {}
        self.drew: set[str] = set()
        self.pair: Pair | None = None
        self.first: FirstBatch | None = None

    def read(self) -> None:
        """Single samples, the batches of a pair, and of a set that a model is judged by the first one."""
        seed, length = self._training.seed, len(self._part)
        size = self._settings.batch_size or self._training.batch_size
        some = min(_SAMPLES, size // 2)
        indices = [derived(ORDER, seed, number, 1) % length for number in range(some)]
        singles = [_Wanted([at], batch=False) for at in _chosen(length, seed)]
        pair = [_Wanted(indices), _Wanted([*indices, *indices])] if some else []
        indices = list(evaluation_order(self._part)[:size])
        first = [] if self._name == "train" else [_Wanted(indices, due=self._name == "validation")]
        found = self._found([*singles, *pair, *first])
        if isinstance(found[-1].given, ExceptionWrapper):
            found[-1].given.reraise()
        for want, each in zip(singles, found, strict=False):
            self.drew.update(each.drew)
            if each.given is not None:
                self.contents[want.indices[0]] = each.given
        once, twice = (each.given for each in found[len(singles) :][: len(pair)]) if pair else (None, None)
        if once is not None and twice is not None:
            self.pair = Pair(once, twice, some)
        if first and found[-1].given is not None:
            stream = Stream(EVALUATION, seed)
            batch = Batch(found[-1].given, len(first[0].indices), 0, stream.seed(0))
            self.first = FirstBatch(batch, self.pair)

    def _found(self, wanted: Sequence[_Wanted]) -> list[_Found]:
        """In a worker, where training has some: a set may open files when it is first read, and may not be
        forked with them open."""
        seeded = Seeded(self._part, self._training.seed, draws(self._collate))
        fewer = msgspec.structs.replace(
            self._settings,
            num_workers=min(self._settings.num_workers, 1),
            prefetch_factor=None,
            persistent_workers=False,
            pin_memory=False,
        )
        # What is wrong with a set, training will meet itself, and say where.
        batches = cast("Sampler[Any]", wanted)
        made = loader(_Looked(seeded, self._collate), fewer, self._training, batches, _only)
        with undisturbed():
            return list(iterate(made))


def _chosen(length: int, seed: int) -> list[int]:
    """Which samples are looked at: the first, the last, and others."""
    others = (derived(ORDER, seed, number) % length for number in range(_SAMPLES - 2))
    return sorted({0, length - 1, *others})


def _only(found: list[_Found]) -> _Found:
    return found[0]


class _Looked(Dataset[Any]):
    """A data set that is asked for what a few of its samples hold."""

    def __init__(self, seeded: Seeded, collate: Collate):
        self._seeded = seeded
        self._collate = collate
        self._began: float | None = None
        self._samples = 0

    def __getitems__(self, wanted: _Wanted) -> list[_Found]:
        """One answer."""
        if self._takes_long(len(wanted.indices)):
            return [_Found(None)]
        try:
            with drawing(self._seeded.dataset) as drew:
                given = self._batch(wanted.indices) if wanted.batch else self._content(wanted.indices)
        except Exception:
            if not wanted.due:
                return [_Found(None)]  # whatever it is, training meets it, too
            if get_worker_info() is None:
                raise
            # Raised by the loader, it would keep the worker alive as long as anybody holds its traceback.
            return [_Found(ExceptionWrapper(where="in DataLoader worker process 0"))]
        return [_Found(given, drew)]

    def _takes_long(self, samples: int) -> bool:
        """Whether these would, by how long those before them took."""
        self._began = self._began or time.monotonic()
        taken = time.monotonic() - self._began
        expected = taken * samples / max(self._samples, 1)
        self._samples += samples
        return max(taken, expected) > _LONG

    def _batch(self, indices: list[int]) -> Any:
        return self._collate(self._seeded.__getitems__((0, indices)))

    def _content(self, indices: list[int]) -> Content | None:
        first, again = (content(self._seeded.__getitems__((0, indices))[0]) for _ in range(2))
        return first if first == again else None  # to the bit: noise is near the same by chance, too
