"""Which sample goes where: identical splits, global batches, and loaders that can go on anywhere."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset

from trainers.core.config import ConfigError, Evaluation, Training
from trainers.core.distributed import Place
from trainers.core.randomness import ORDER, SAMPLE, SPLIT, derived, seed_all

Item = tuple[int, int]
"""(epoch, index): what a sample's random stream follows from."""

_NOT_FOR_WORKERS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def split(dataset: Dataset[Any], fractions: Sequence[float], seed: int) -> list[Subset[Any]]:
    """Disjoint parts of a data set, the same on every rank; the first takes what rounding leaves.

    Raises:
        ConfigError: the fractions are negative or add up to more than 1.
    """
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ConfigError([f"data.split: is {list(fractions)}, but takes fractions of at least 0, of sum 1"])
    total = len(dataset)  # type: ignore[arg-type]  # map-style sets have a length
    sizes = [int(total * fraction + 1e-9) for fraction in fractions]
    if abs(sum(fractions) - 1) < 1e-9:
        sizes[0] += total - sum(sizes)
    generator = torch.Generator().manual_seed(derived(SPLIT, seed))
    order = torch.randperm(total, generator=generator).tolist()
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


class GlobalBatches(Sampler[list[Item]]):
    """This rank's part of each global batch.

    An epoch is one permutation that follows from (seed, epoch); step k takes the k-th global batch
    of batch_size * world_size of it, and the ranks deal its samples out one by one. So what is
    trained on together does not depend on the world size, no sample comes twice in an epoch, and
    all ranks make equally many steps. Where the last global batch has fewer samples than there are
    ranks, the ranks that would have none get one sample that must not count: see `real`.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        place: Place,
        *,
        seed: int,
        shuffle: bool = True,
        drop_last: bool = False,
    ):
        if length < 1:
            raise ConfigError(["data: the training set is empty"])
        self.length = length
        self.batch_size = batch_size
        self.rank = place.rank
        self.world_size = place.world_size
        self.seed = seed
        self.shuffle = shuffle
        self.global_batch = batch_size * place.world_size
        self.drop_last = drop_last
        if drop_last and length < self.global_batch:
            raise ConfigError(
                [
                    f"training.drop_last: the training set has {length} samples, fewer than one global "
                    f"batch of {batch_size} x {place.world_size} ranks, and would be dropped whole; lower "
                    "training.batch_size or set training.drop_last: false"
                ]
            )
        self.epoch = 0
        self.consumed = 0
        """Steps of this epoch that are done; the next iteration begins after them."""

    def __len__(self) -> int:
        """Steps in an epoch, on every rank."""
        whole, rest = divmod(self.length, self.global_batch)
        return whole + (1 if rest and not self.drop_last else 0)

    def order(self) -> list[int]:
        """The epoch's permutation."""
        if not self.shuffle:
            return list(range(self.length))
        generator = torch.Generator().manual_seed(derived(ORDER, self.seed, self.epoch))
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        return order

    def samples(self, step: int) -> int:
        """How many samples the ranks take together in a step."""
        return min(self.global_batch, self.length - step * self.global_batch)

    def real(self, step: int) -> int:
        """How many of this rank's samples in a step count; 0: its one sample is a stand-in."""
        samples = self.samples(step)
        return (samples - self.rank + self.world_size - 1) // self.world_size

    def __iter__(self) -> Iterator[list[Item]]:
        """The batches of the epoch that are not consumed yet."""
        order, epoch = self.order(), self.epoch
        for step in range(self.consumed, len(self)):
            first = step * self.global_batch
            mine = order[first + self.rank : first + self.samples(step) : self.world_size]
            yield [(epoch, index) for index in mine or order[first : first + 1]]


class Seeded(Dataset[Any]):
    """A data set whose samples draw from their own random stream, whichever worker loads them."""

    def __init__(self, dataset: Any, seed: int):
        self.dataset = dataset
        self.seed = seed
        self._draws = not _only_looks_up(dataset)

    def __len__(self) -> int:
        """As many as it has."""
        return len(self.dataset)

    def __getitem__(self, item: Item) -> Any:
        """The sample of (epoch, index)."""
        epoch, index = item
        if self._draws:
            seed_all(derived(SAMPLE, self.seed, epoch, index))
        return self.dataset[index]


def _only_looks_up(dataset: Any) -> bool:
    """Whether a data set is one of torch's that cannot draw: seeding costs more than their samples."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset


class _Shard(Sampler[list[Item]]):
    """Every world_size-th sample, in batches: nothing is padded, so nothing counts twice."""

    def __init__(self, length: int, batch_size: int, rank: int, world_size: int):
        self.items = [(0, index) for index in range(rank, length, world_size)]
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.items) // self.batch_size)

    def __iter__(self) -> Iterator[list[Item]]:
        for first in range(0, len(self.items), self.batch_size):
            yield self.items[first : first + self.batch_size]


def training_loader(
    dataset: Any, training: Training, place: Place, collate: Callable[[list[Any]], Any]
) -> DataLoader[Any]:
    """This rank's loader of the training set; its `batch_sampler` is a `GlobalBatches`."""
    batches = GlobalBatches(
        len(dataset),
        training.batch_size,
        place,
        seed=training.seed,
        shuffle=training.shuffle,
        drop_last=training.drop_last,
    )
    return _loader(dataset, batches, training, training, collate)


def evaluation_loader(
    dataset: Any,
    settings: Evaluation,
    training: Training,
    collate: Callable[[list[Any]], Any],
    *,
    rank: int,
    world_size: int,
) -> DataLoader[Any]:
    """A rank's share of a data set that is only looked at."""
    shard = _Shard(len(dataset), settings.batch_size or training.batch_size, rank, world_size)
    return _loader(dataset, shard, settings, training, collate)


def _loader(
    dataset: Any,
    batches: Sampler[list[Item]],
    settings: Training | Evaluation,
    training: Training,
    collate: Callable[[list[Any]], Any],
) -> DataLoader[Any]:
    workers = settings.num_workers
    return DataLoader(
        Seeded(dataset, training.seed),
        batch_sampler=batches,
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

    torch has installed a handler of its own for TERM before this is called.
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
