"""Reads a few samples of each data set before training, in the way that training reads them.

The samples show whether all ranks have the same data sets and whether a set draws from a private generator. A
batch, and a batch with the same samples twice, show whether the loss is a sum (`additivity`); the first
batches of the other sets show whether evaluation works (`first_evaluation`).
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
"""Number of samples read of each set, and number of samples in the batch of a pair."""

_LONG = 10.0
"""Seconds after which reading a set stops; samples not read by then are not compared. A batch that is
expected to take longer is not read either."""


class Probed(NamedTuple):
    """The batches read; sets without a length and sets that take long to read have none."""

    pair: Pair | None
    """A batch of the training set, and one with its samples twice."""
    first: dict[str, FirstBatch]
    """First batches of the validation and the test set, by name."""


def probed(splits: Splits, config: Config, context: RankContext, collate: Collate) -> Probed:
    """Read the sets, and check that all ranks have the same ones; all ranks must call it.

    Nothing is read if `training.check_first_step` is false.

    Raises:
        ConfigError: the ranks have different samples; raised on all ranks.
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
    """Whether to read them as a batch; else the content of a single sample is wanted."""
    due: bool = False
    """Whether an error in reading them is raised at once, because training would meet it only late."""


class _Found(NamedTuple):
    """The result of reading a set."""

    given: Any
    """The batch or the Content that was read. None: reading failed (training will report it), or the
    sample differs each time.
    """
    drew: Sequence[str] = ()
    """The data set's private generators that reading advanced."""


class _Set:
    """A data set, and the samples read from it."""

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
        """Read single samples, the batches of a pair, and the first batch of a validation or test set."""
        seed, length = self._training.seed, len(self._part)
        size = self._settings.batch_size or self._training.batch_size
        some = min(_SAMPLES, size // 2)
        indices = [derived(ORDER, seed, number, 1) % length for number in range(some)]
        singles = [_Wanted([at], batch=False) for at in _chosen(length, seed)]
        pair = [_Wanted(indices), _Wanted([*indices, *indices])] if some else []
        indices = list(evaluation_order(self._part)[:size])
        first = [] if self._name == "train" else [_Wanted(indices, due=self._name == "validation")]
        results = self._found([*singles, *pair, *first])
        if isinstance(results[-1].given, ExceptionWrapper):
            results[-1].given.reraise()
        for want, each in zip(singles, results, strict=False):
            self.drew.update(each.drew)
            if each.given is not None:
                self.contents[want.indices[0]] = each.given
        once, twice = (each.given for each in results[len(singles) :][: len(pair)]) if pair else (None, None)
        if once is not None and twice is not None:
            self.pair = Pair(once, twice, some)
        if first and results[-1].given is not None:
            stream = Stream(EVALUATION, seed)
            batch = Batch(results[-1].given, len(first[0].indices), 0, stream.seed(0))
            self.first = FirstBatch(batch, self.pair)

    def _found(self, wanted: Sequence[_Wanted]) -> list[_Found]:
        """Read in a worker, if training uses workers: a set may open files at its first read, and must not be
        forked with open files.
        """
        seeded = Seeded(self._part, self._training.seed, draws(self._collate))
        fewer = msgspec.structs.replace(
            self._settings,
            num_workers=min(self._settings.num_workers, 1),
            prefetch_factor=None,
            persistent_workers=False,
            pin_memory=False,
        )
        # Other mistakes in a set are left to training, which reports where they occur.
        batches = cast("Sampler[Any]", wanted)
        made = loader(_Looked(seeded, self._collate), fewer, self._training, batches, _only)
        with undisturbed():
            return list(iterate(made))


def _chosen(length: int, seed: int) -> list[int]:
    """The indices of the samples to read: the first, the last, and some drawn ones."""
    others = (derived(ORDER, seed, number) % length for number in range(_SAMPLES - 2))
    return sorted({0, length - 1, *others})


def _only(found: list[_Found]) -> _Found:
    return found[0]


class _Looked(Dataset[Any]):
    """A data set whose items are the results of reading requests (`_Wanted`)."""

    def __init__(self, seeded: Seeded, collate: Collate):
        self._seeded = seeded
        self._collate = collate
        self._began: float | None = None
        self._samples = 0

    def __getitems__(self, wanted: _Wanted) -> list[_Found]:
        """The result of a request, in a list with one item."""
        if self._takes_long(len(wanted.indices)):
            return [_Found(None)]
        try:
            with drawing(self._seeded.dataset) as drew:
                result = self._batch(wanted.indices) if wanted.batch else self._content(wanted.indices)
        except Exception:
            if not wanted.due:
                return [_Found(None)]  # training will meet the same error
            if get_worker_info() is None:
                raise
            # If the loader raised it, its traceback would keep the worker alive.
            return [_Found(ExceptionWrapper(where="in DataLoader worker process 0"))]
        return [_Found(result, drew)]

    def _takes_long(self, samples: int) -> bool:
        """Whether reading these samples would take long, judged by the time that earlier samples took."""
        self._began = self._began or time.monotonic()
        taken = time.monotonic() - self._began
        expected = taken * samples / max(self._samples, 1)
        self._samples += samples
        return max(taken, expected) > _LONG

    def _batch(self, indices: list[int]) -> Any:
        return self._collate(self._seeded.__getitems__((0, indices)))

    def _content(self, indices: list[int]) -> Content | None:
        first, again = (content(self._seeded.__getitems__((0, indices))[0]) for _ in range(2))
        return (
            first if first == again else None
        )  # compared to the bit: noise can be nearly the same by chance
