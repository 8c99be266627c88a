"""The loaders of a training: this module loads map-style data sets, `iterable` loads streams."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Sampler, Subset, TensorDataset

from castoff.trainers.configuration.config import Config, Evaluation, Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.batches import (
    Batch,
    Collate,
    Group,
    Micro,
    TrainingLoader,
    drawn_from,
    draws,
    iterate,
    loader,
)
from castoff.trainers.data.epochs import teller
from castoff.trainers.data.iterable import IterableLoader
from castoff.trainers.data.length_batching import length_bucketed, lengths_of, longest_first
from castoff.trainers.data.sampling import Order, ShardPlan, micro_batches, order_of, shard
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.private_torch import end_workers
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import EVALUATION, SAMPLE, Stream, seed_all
from castoff.trainers.task import Splits

__all__ = [
    "Batch",
    "EvaluationLoader",
    "Group",
    "MapLoader",
    "Micro",
    "TrainingLoader",
    "evaluation_loader",
    "loaders",
    "must_be",
    "training_loader",
]

Wanted: TypeAlias = "tuple[int, list[int]]"
"""(epoch, indices) of a batch's samples, from which their random seeds derive."""


class MapLoader(TrainingLoader):
    """Loads a map-style data set; each group depends only on (seed, epoch, step)."""

    def __init__(
        self, dataset: Any, training: Training, context: RankContext, collate: Collate, least: int = 2
    ):
        self.dataset = dataset
        self._rank = context.rank
        self._deal = shard(
            _length(dataset, "or make it a torch IterableDataset"),
            training.batch_size,
            training.gradient_accumulation_steps,
            context.world_size,
            drop_last=training.drop_last,
            least=least,
        )
        self._batches = _MicroBatches(self._deal, training, context.rank, lengths_of(dataset))
        samples, joined = _samples_and_collate(dataset, training.seed, collate)
        self._loader = loader(samples, training, training, self._batches, joined)
        _report_dropped(self._deal, training, context, least)

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch, the same on every rank."""
        return self._deal.steps

    def __len__(self) -> int:
        """Optimizer steps of an epoch: this rank's batches if gradients are not accumulated."""
        return self.steps

    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """Iterate over the groups of an epoch, skipping the first `consumed`."""
        self._batches.epoch, self._batches.consumed = epoch, consumed
        loaded = iterate(self._loader)
        for step in range(consumed, self.steps):
            sizes = self._deal.micros(step, self._rank)
            last = len(sizes) - 1
            micros = [Micro(next(loaded), size, number == last) for number, size in enumerate(sizes)]
            yield Group(micros, self._deal.samples(step))

    def is_over(self, consumed: int) -> bool:
        """Whether the epoch has no group after the first `consumed`."""
        return consumed >= self.steps

    def close(self) -> None:
        """End the workers kept between epochs; the next epoch starts new ones."""
        end_workers(self._loader)


class EvaluationLoader:
    """Loads a rank's share of a validation or test set: every world_size-th batch.

    Batches are the same on any number of ranks, and every sample is in exactly one. They follow the data
    set's order, or begin with the longest samples if it has `lengths`.
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
        self.batch_size = size = settings.batch_size or training.batch_size
        _length(dataset, "validation and test sets need one, so that every sample counts once")
        self._share = _Share(evaluation_order(dataset), size, rank, world_size)
        self._stream = Stream(EVALUATION, training.seed)
        samples, joined = _samples_and_collate(dataset, training.seed, collate)
        self._loader = loader(samples, settings, training, self._share, joined)

    def __len__(self) -> int:
        """The batches of this rank."""
        return len(self._share)

    @property
    def rounds(self) -> int:
        """The largest number of batches that a rank has."""
        return self._share.rounds

    @property
    def number_of_batches(self) -> int:
        """Batches of all ranks together."""
        return self._share.numbers.stop

    @property
    def is_even(self) -> bool:
        """Whether all ranks have the same number of batches."""
        return self.number_of_batches % self._share.numbers.step == 0

    @property
    def seed(self) -> int:
        """Seed for random numbers drawn after all batches are evaluated; the same on any number of ranks."""
        return self._stream.seed(self._share.numbers.stop)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of this rank."""
        for number, data in zip(self._share.numbers, iterate(self._loader), strict=True):
            yield Batch(data, len(self._share.samples(number)), number, self._stream.seed(number))

    def close(self) -> None:
        """End the workers kept between evaluations; the next evaluation starts new ones."""
        end_workers(self._loader)


def loaders(
    splits: Splits, config: Config, context: RankContext, collate: Collate, *, whole: bool, least: int = 2
) -> tuple[TrainingLoader, EvaluationLoader, EvaluationLoader]:
    """A rank's loaders of the training, validation and test set.

    Ranks share the training and validation sets; with `whole` they share the training set only. A test loader
    always has the whole set. `least`: the fewest samples that the model needs in a micro-batch, 2 if it has
    BatchNorm.
    """
    training, all_of_it = config.training, {"rank": 0, "world_size": 1}
    share = all_of_it if whole else {"rank": context.rank, "world_size": context.world_size}
    return (
        training_loader(splits.train, training, context, collate, least),
        evaluation_loader(splits.validation, config.validation, training, collate, **share),
        evaluation_loader(splits.test, config.testing, training, collate, **all_of_it),
    )


def training_loader(
    dataset: Any, training: Training, context: RankContext, collate: Collate, least: int = 2
) -> TrainingLoader:
    """This rank's loader of the training set: map-style, or a torch IterableDataset.

    Raises:
        ConfigError: the data set has too few samples for a step, or is neither.
    """
    kind = IterableLoader if isinstance(dataset, IterableDataset) else MapLoader
    return kind(dataset, training, context, collate, least)


def evaluation_loader(
    dataset: Any,
    settings: Evaluation,
    training: Training,
    collate: Collate,
    *,
    rank: int,
    world_size: int,
) -> EvaluationLoader:
    """A loader of a rank's share of a validation or test set.

    Raises:
        ConfigError: the data set has no length.
    """
    return EvaluationLoader(dataset, settings, training, collate, rank=rank, world_size=world_size)


def evaluation_order(dataset: Any) -> Sequence[int]:
    """The order in which the samples of a validation or test set are evaluated."""
    lengths = lengths_of(dataset)
    return range(len(dataset)) if lengths is None else longest_first(lengths)


def must_be(kind: type, given: Any, name: str) -> None:
    """Check that a loader is one of the trainer's.

    Raises:
        TypeError: it is not, but a torch DataLoader, say, whose sampler would decide the order of samples.
    """
    if not isinstance(given, kind):
        raise TypeError(
            f"{name} is a {type(given).__name__}; pass what prepare_dataloaders() returns. The trainer "
            "decides the order of samples, so that a run can resume anywhere, and accepts no sampler: "
            "to make some samples count more, weight them in the loss, or repeat them in the data set"
        )


def _length(dataset: Any, why: str) -> int:
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        kind = type(dataset).__name__
        raise ConfigError(
            [f"data: {kind} has no length and cannot be indexed; define __len__ and __getitem__: {why}"]
        )
    return len(dataset)


# --- Samples ------------------------------------------------------------------------------------


class Seeded(Dataset[Any]):
    """A data set whose samples draw from their own random stream, whichever worker loads them.

    It calls the data set's `set_epoch`; validation and test use epoch 0.

    `batches_draw`: the collate function draws random numbers too; it is seeded for each batch.
    """

    def __init__(self, dataset: Any, seed: int, batches_draw: bool = False):
        self.dataset = dataset
        self.seed = seed
        self._batches_draw = batches_draw
        self._generators = drawn_from(dataset)

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.dataset)

    def __getitems__(self, wanted: Wanted) -> list[Any]:
        """The samples of `wanted`, (epoch, indices)."""
        epoch, indices = wanted
        tell = teller(self.dataset)
        if tell is not None:
            tell(epoch)
        stream = Stream(SAMPLE, self.seed, epoch) if self._generators or self._batches_draw else None
        samples = self._samples(stream, indices)
        if stream is not None and self._batches_draw:
            seed_all(stream.seed(indices[0], len(indices)))
        return samples

    def _samples(self, stream: Stream | None, indices: list[int]) -> list[Any]:
        if stream is None or not self._generators:
            many = getattr(self.dataset, "__getitems__", None)
            return list(many(indices)) if callable(many) else [self.dataset[index] for index in indices]
        samples = []
        for index in indices:
            seed_all(stream.seed(index), self._generators)
            samples.append(self.dataset[index])
        return samples


class _Rows(Dataset[Any]):
    """A TensorDataset whose batches are indexed from each tensor at once, equal to default_collate's.

    Collating 32 small samples one by one takes longer than a small model's forward pass.
    """

    def __init__(self, dataset: Any):
        self._dataset = dataset

    def __len__(self) -> int:
        """The number of samples."""
        return len(self._dataset)

    def __getitems__(self, wanted: Wanted) -> list[Tensor]:
        """The batch of `wanted`, (epoch, indices)."""
        dataset: Any = self._dataset
        _, indices = wanted
        while type(dataset) is Subset:
            dataset, indices = dataset.dataset, [dataset.indices[index] for index in indices]
        rows = torch.tensor(indices)
        return [tensor[rows].contiguous() for tensor in dataset.tensors]

    @staticmethod
    def can(dataset: Any) -> bool:
        """Whether a data set is a TensorDataset of plain tensors; others, such as channels_last, may give
        other strides.
        """
        while type(dataset) is Subset:
            dataset = dataset.dataset
        return type(dataset) is TensorDataset and all(map(_is_plain, dataset.tensors))


def _is_plain(tensor: Tensor) -> bool:
    dense = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return dense and (tensor.dim() <= 2 or tensor.is_contiguous())


def _samples_and_collate(dataset: Any, seed: int, collate: Collate) -> tuple[Dataset[Any], Collate | None]:
    """The data set to index for a batch, and the collate function; None: the set returns whole batches."""
    if not draws(collate) and _Rows.can(dataset):
        return _Rows(dataset), None
    return Seeded(dataset, seed, draws(collate)), collate


# --- Batches ------------------------------------------------------------------------------------


class _MicroBatches(Sampler[Wanted]):
    """The indices of a rank's micro-batches in `epoch`, without the first `consumed` steps."""

    def __init__(self, plan: ShardPlan, training: Training, rank: int, lengths: Tensor | None):
        self._deal = plan
        self._training = training
        self._rank = rank
        self._lengths = lengths
        self.epoch = 0
        self.consumed = 0

    def __iter__(self) -> Iterator[Wanted]:
        epoch, training = self.epoch, self._training
        order: Order | range = order_of(self._deal.length, training.seed, epoch, shuffle=training.shuffle)
        if self._lengths is not None and isinstance(order, Permutation):
            order = length_bucketed(self._lengths, self._deal, order, training.seed, epoch)
        for indices in micro_batches(self._deal, order, self._rank, self.consumed):
            yield epoch, indices


class _Share(Sampler[Wanted]):
    """The indices of every world_size-th batch of a data set."""

    def __init__(self, order: Sequence[int], batch_size: int, rank: int, world_size: int):
        self._order = order
        self._batch_size = batch_size
        self.numbers = range(rank, -(-len(order) // batch_size), world_size)

    @property
    def rounds(self) -> int:
        """Batches of rank 0, the rank that has most."""
        return len(range(0, self.numbers.stop, self.numbers.step))

    def samples(self, number: int) -> Sequence[int]:
        """The indices of the samples in one batch."""
        return self._order[number * self._batch_size : (number + 1) * self._batch_size]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[Wanted]:
        for number in self.numbers:
            yield 0, list(self.samples(number))


def _report_dropped(plan: ShardPlan, training: Training, context: RankContext, least: int) -> None:
    left = plan.length - plan.bounds(plan.steps - 1)[1]
    if left and not training.drop_last and context.is_main:
        logging.getLogger(__name__).warning(
            "The last %d of %d training samples are left out of each epoch (different ones each time if "
            "it is shuffled): on %d ranks they %s. Change training.batch_size or the number of ranks to "
            "use all samples",
            left,
            plan.length,
            context.world_size,
            "leave some ranks without a sample"
            if min(plan.batch_size, least) == 1
            else "make micro-batches of fewer than two samples, on which the model's BatchNorm cannot train",
        )
