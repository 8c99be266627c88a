"""Loaders that can go on anywhere: the groups of each optimizer step, and what is only looked at."""

from __future__ import annotations

import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset

from trainers.core.config import ConfigError, Evaluation, Training
from trainers.core.distributed import Place
from trainers.core.randomness import EVALUATION, GENERATORS, SAMPLE, Stream, seed_all
from trainers.core.sampling import Deal, deal, micro_batches, order_of

Collate: TypeAlias = Callable[[list[Any]], Any]

Wanted: TypeAlias = "tuple[int, list[int]]"
"""(epoch, indices): the samples of a batch, and what their random streams follow from."""

_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Micro(NamedTuple):
    """A micro-batch: what one forward and backward pass takes."""

    data: Any
    """Collated, on the CPU."""
    samples: int
    """This rank's."""
    last: bool
    """Whether it ends its group."""


class Group(NamedTuple):
    """What this rank takes in one optimizer step."""

    micros: list[Micro]
    """As many on every rank."""
    samples: int | None
    """Of all ranks together; None where nobody knows before."""


class Batch(NamedTuple):
    """A batch that is only looked at."""

    data: Any
    """Collated, on the CPU."""
    samples: int
    seed: int
    """Of what is drawn while it is judged; the same on any number of ranks."""


class TrainingLoader(ABC):
    """This rank's part of the training set, in groups, from any step of any epoch on."""

    dataset: Any
    global_batch: int
    """Samples of a whole optimizer step, of all ranks."""
    world_size_matters = False
    """Whether a checkpoint can go on with this number of ranks alone."""

    @property
    @abstractmethod
    def steps(self) -> int | None:
        """Optimizer steps of an epoch, on every rank; None: nobody knows before its end."""

    @abstractmethod
    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """The groups of an epoch, without the first `consumed`."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, beside the epoch and the steps of it that are done."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""


class MapLoader(TrainingLoader):
    """Of a data set with a length and an index; all that it does follows from (seed, epoch, step)."""

    def __init__(self, dataset: Any, training: Training, place: Place, collate: Collate):
        self.dataset = dataset
        self._rank = place.rank
        self._deal = deal(
            len(dataset),
            training.batch_size,
            training.gradient_accumulation_steps,
            place.world_size,
            drop_last=training.drop_last,
        )
        self.global_batch = self._deal.global_batch
        self._batches = _MicroBatches(self._deal, training, place.rank)
        self._loader = _loader(Seeded(dataset, training.seed), self._batches, training, training, collate)
        _tell_of_dropped(self._deal, training, place)

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch, on every rank."""
        return self._deal.steps

    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """The groups of an epoch, without the first `consumed`."""
        self._batches.epoch, self._batches.consumed = epoch, consumed
        loaded = iterate(self._loader)
        for step in range(consumed, self.steps):
            sizes = self._deal.micros(step, self._rank)
            last = len(sizes) - 1
            micros = [Micro(next(loaded), size, number == last) for number, size in enumerate(sizes)]
            yield Group(micros, self._deal.samples(step))


class EvaluationLoader:
    """A rank's share of a data set that is only looked at: every world_size-th batch.

    Batches are the same on any number of ranks, every sample is in one of them, and nothing is padded.
    """

    def __init__(
        self,
        dataset: Any,
        settings: Evaluation,
        training: Training,
        collate: Collate,
        *,
        rank: int,
        world_size: int,
    ):
        self.dataset = dataset
        size = settings.batch_size or training.batch_size
        self._share = _Share(_length(dataset), size, rank, world_size)
        self._stream = Stream(EVALUATION, training.seed)
        self._loader = _loader(Seeded(dataset, training.seed), self._share, settings, training, collate)

    def __len__(self) -> int:
        """This rank's batches."""
        return len(self._share)

    @property
    def rounds(self) -> int:
        """Batches of the rank that has most."""
        return self._share.rounds

    def __iter__(self) -> Iterator[Batch]:
        """This rank's batches."""
        for number, data in zip(self._share.numbers, iterate(self._loader), strict=True):
            yield Batch(data, len(self._share.samples(number)), self._stream.seed(number))


def training_loader(dataset: Any, training: Training, place: Place, collate: Collate) -> TrainingLoader:
    """This rank's loader of the training set.

    Raises:
        ConfigError: its samples make no step.
    """
    return MapLoader(dataset, training, place, collate)


def evaluation_loader(
    dataset: Any,
    settings: Evaluation,
    training: Training,
    collate: Collate,
    *,
    rank: int,
    world_size: int,
) -> EvaluationLoader:
    """A rank's share of a data set that is only looked at.

    Raises:
        ConfigError: it has no length.
    """
    return EvaluationLoader(dataset, settings, training, collate, rank=rank, world_size=world_size)


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        kind = type(dataset).__name__
        raise ConfigError(
            [
                f"data: {kind} has no length; validation and test sets need one, so that every sample counts "
                "once (give it __len__ and __getitem__, or make a list of its samples)"
            ]
        ) from None


# --- Samples ------------------------------------------------------------------------------------


class Seeded(Dataset[Any]):
    """A data set whose samples draw from their own random stream, whichever worker loads them."""

    def __init__(self, dataset: Any, seed: int):
        self.dataset = dataset
        self.seed = seed
        self._generators = _drawn_from(dataset)

    def __len__(self) -> int:
        """As many as it has."""
        return len(self.dataset)

    def __getitems__(self, wanted: Wanted) -> list[Any]:
        """The samples of (epoch, indices)."""
        epoch, indices = wanted
        if not self._generators:
            many = getattr(self.dataset, "__getitems__", None)
            return list(many(indices)) if callable(many) else [self.dataset[index] for index in indices]
        stream = Stream(SAMPLE, self.seed, epoch)
        samples = []
        for index in indices:
            seed_all(stream.seed(index), self._generators)
            samples.append(self.dataset[index])
        return samples


def _drawn_from(dataset: Any) -> frozenset[str]:
    """The generators that a data set may draw from: seeding them costs more than a sample of a tensor.

    It says so itself by `draws_from`; a list and torch's TensorDataset draw nothing.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    if type(dataset) in (TensorDataset, list, tuple):
        return frozenset()
    declared = getattr(dataset, "draws_from", None)
    if declared is None:
        return GENERATORS
    if isinstance(declared, str) or not GENERATORS.issuperset(declared):
        kind = type(dataset).__name__
        raise ConfigError(
            [f"data: {kind}.draws_from is {declared!r}; it takes some of {sorted(GENERATORS)}, or ()"]
        )
    return frozenset(declared)


# --- Batches ------------------------------------------------------------------------------------


class _MicroBatches(Sampler[Wanted]):
    """A rank's micro-batches of the epoch that is set, without the steps that are consumed."""

    def __init__(self, dealt: Deal, training: Training, rank: int):
        self._deal = dealt
        self._training = training
        self._rank = rank
        self.epoch = 0
        self.consumed = 0

    def __iter__(self) -> Iterator[Wanted]:
        epoch, training = self.epoch, self._training
        order = order_of(self._deal.length, training.seed, epoch, shuffle=training.shuffle)
        for indices in micro_batches(self._deal, order, self._rank, self.consumed):
            yield epoch, indices


class _Share(Sampler[Wanted]):
    """Every world_size-th batch of a data set in its own order."""

    def __init__(self, length: int, batch_size: int, rank: int, world_size: int):
        self._length = length
        self._batch_size = batch_size
        self.numbers = range(rank, -(-length // batch_size), world_size)

    @property
    def rounds(self) -> int:
        """Batches of the rank that has most: rank 0."""
        return len(range(0, self.numbers.stop, self.numbers.step))

    def samples(self, number: int) -> range:
        """Which samples a batch has."""
        return range(number * self._batch_size, min((number + 1) * self._batch_size, self._length))

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Wanted]:
        for number in self.numbers:
            yield 0, list(self.samples(number))


def _tell_of_dropped(dealt: Deal, training: Training, place: Place) -> None:
    left = dealt.length - dealt.bounds(dealt.steps - 1)[1]
    if left and not training.drop_last and place.is_main:
        logging.getLogger(__name__).warning(
            "The last %d of %d training samples are left out of each epoch (others, where it is shuffled): "
            "on %d ranks they make micro-batches of fewer than two samples, on which BatchNorm cannot train. "
            "Change training.batch_size or the number of ranks to have all",
            left,
            dealt.length,
            place.world_size,
        )


# --- Workers ------------------------------------------------------------------------------------


def _loader(
    dataset: Dataset[Any],
    batches: Sampler[Wanted],
    settings: Training | Evaluation,
    training: Training,
    collate: Collate,
) -> DataLoader[Any]:
    workers = settings.num_workers
    return DataLoader(
        dataset,
        batch_sampler=batches,  # type: ignore[arg-type]  # Seeded takes each as a whole
        num_workers=workers,
        collate_fn=collate,
        pin_memory=settings.pin_memory and torch.accelerator.is_available(),
        worker_init_fn=_worker_init,
        multiprocessing_context=training.multiprocessing_context if workers else None,
        persistent_workers=settings.persistent_workers and workers > 0,
        prefetch_factor=settings.prefetch_factor if workers else None,
        # iter() draws a seed from a generator: from the global one it would shift all that follows.
        generator=torch.Generator().manual_seed(training.seed),
    )


def _worker_init(_: int) -> None:
    """Leave signals to the rank: a worker that dies of one makes the loader raise in mid-step.

    torch has installed a handler of its own for TERM before this is called. Ctrl-C reaches the whole
    foreground group.
    """
    for number in _NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_WORKERS)


def iterate(loader: Iterable[Any]) -> Iterator[Any]:
    """`iter(loader)`, with workers that hear none of the signals that are for the rank.

    Under spawn and forkserver a worker is a new interpreter, which a signal would end before its
    first line of ours: what it inherits blocks the signals until it ignores them.
    """
    context = getattr(loader, "multiprocessing_context", None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        if context is not None and context.get_start_method() != "fork":
            resource_tracker.ensure_running()  # it ignores TERM itself, and would die of the others
            signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)  # it has unblocked TERM
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
