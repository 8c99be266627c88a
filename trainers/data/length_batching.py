"""Batches of samples of similar length, so that little is padded; the order of an epoch stays random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.sampling import ShardPlan
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.randomness import ORDER, derived
from castoff.trainers.task.contract import in_words

_WINDOWS = 4
"""The smallest number of parts that an epoch's random order is cut into before each is sorted: sorted as a
whole, the set would have the same batches in every epoch. A set too small for two parts is sorted whole, and
then samples are moved a little at random."""

_MOST, _LEAST = 50, 4
"""The most and the fewest global batches in a part."""

_SAMPLES = 64
"""The fewest samples in a part: among fewer, too few have similar lengths."""


class FixedOrder:
    """An epoch's order as a tensor of sample indices."""

    def __init__(self, order: Tensor):
        self._order = order

    def at(self, places: Sequence[int]) -> list[int]:
        """The samples at these positions of the order."""
        samples: list[int] = self._order[torch.tensor(places, dtype=torch.int64)].tolist()
        return samples


def lengths_of(dataset: Any) -> Tensor | None:
    """The lengths of a data set's samples from its attribute `lengths`, shape (samples,); None: it has none.

    A Subset takes its samples' lengths from the whole set.

    Raises:
        ConfigError: they are not whole numbers ≥ 0, one for each sample.
    """
    attribute = getattr(dataset, "lengths", None)
    if attribute is None:
        whole = lengths_of(dataset.dataset) if isinstance(dataset, Subset) else None
        return None if whole is None else whole[_numbers(dataset.indices)]
    name = f"{type(dataset).__name__}.lengths"
    try:
        lengths = torch.as_tensor(attribute)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _wrong(name, f"is {in_words(attribute)}") from error
    if lengths.dim() != 1 or len(lengths) != len(dataset):
        raise _wrong(name, f"has the shape {tuple(lengths.shape)}, but the set has {len(dataset)} samples")
    if not len(lengths):
        return lengths.long()
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise _wrong(name, f"has numbers of {lengths.dtype}")
    if lengths.min() < 0:
        raise _wrong(name, f"has {int(lengths.min())}")
    return lengths.long()


def longest_first(lengths: Tensor) -> list[int]:
    """The order for evaluation: the longest samples, which take most memory, come first."""
    samples: list[int] = lengths.argsort(descending=True, stable=True).tolist()
    return samples


def length_bucketed(
    lengths: Tensor, plan: ShardPlan, order: Permutation, seed: int, epoch: int
) -> FixedOrder:
    """An epoch's order in which micro-batches have samples of similar lengths, on every rank.

    The random `order` is cut into parts; each is sorted by length (in small sets with a little random
    movement) and cut into global batches, which are then shuffled. Steps with fewer samples stay last. Which
    samples are trained on together depends only on the lengths, the global batch size, the seed and the
    epoch. In a step each micro-batch takes neighbours in the sorted order; which rank has the longest samples
    is drawn at random, and a rank with several micro-batches has short samples as well.
    """
    generator = torch.Generator().manual_seed(derived(ORDER, seed, epoch, 1))
    whole = min(plan.even_from, plan.steps, plan.length // plan.global_batch)
    taken = order.tensor()[: plan.bounds(plan.steps - 1)[1]]
    sorted_, rest = _sorted(lengths, plan, taken, whole, generator)
    batches = sorted_[torch.randperm(whole, generator=generator)]
    parts = [_turned(batches[:, _places(plan, 0)], plan.world_size, generator)] if whole else []
    parts += [run[_places(plan, step)] for step, run in zip(range(whole, plan.steps), rest, strict=True)]
    return FixedOrder(torch.cat([part.flatten() for part in parts]))


def _sorted(
    lengths: Tensor, plan: ShardPlan, taken: Tensor, whole: int, generator: torch.Generator
) -> tuple[Tensor, list[Tensor]]:
    """The samples, sorted by length: those of the full global batches, in shape (batches, global batch), and
    those of each smaller step.

    Each smaller step takes consecutive samples of the last part, from a random position.
    """
    sizes = [plan.samples(step) for step in range(whole, plan.steps)]
    windows = _windows(whole, plan.global_batch, len(taken))
    ends = [whole * (number + 1) // windows * plan.global_batch for number in range(windows)]
    ends[-1] = len(taken)
    window = torch.bucketize(torch.arange(len(taken)), torch.tensor(ends), right=True)
    samples = taken[(window * (lengths.max() + 1) + lengths[taken]).argsort(stable=True)]
    if windows == 1:
        samples = samples[_near_by(len(samples), plan.global_batch, generator)]
    rest = []
    begin = ends[-2] if windows > 1 else 0
    for size in sizes:
        batches = (len(samples) - begin - size) // plan.global_batch
        first = begin + int(torch.randint(batches + 1, (), generator=generator)) * plan.global_batch
        rest.append(_by_length(samples[first : first + size].unsqueeze(0), lengths).squeeze(0))
        samples = torch.cat([samples[:first], samples[first + size :]])
    return _by_length(samples.view(whole, plan.global_batch), lengths), rest


def _near_by(number: int, global_batch: int, generator: torch.Generator) -> Tensor:
    """The positions 0 to number - 1, each moved at random by at most about half a global batch."""
    reach = global_batch / 2 + 2
    places = torch.arange(number) + reach * torch.rand(number, generator=generator)
    return places.argsort(stable=True)


def _by_length(batches: Tensor, lengths: Tensor) -> Tensor:
    """The batches, shape (batches, samples), each sorted by length, shortest first."""
    return batches.gather(1, lengths[batches].argsort(dim=1, stable=True))


def _windows(whole: int, global_batch: int, samples: int) -> int:
    """The number of parts that an epoch's order is cut into."""
    wanted = max(_WINDOWS, -(-whole // _MOST))
    return max(1, min(wanted, samples // _SAMPLES, whole // _LEAST))


def _places(plan: ShardPlan, step: int) -> Tensor:
    """Indices into a step's sorted samples, in the order in which ranks take them in turn.

    Each micro-batch gets consecutive indices; every second round of micro-batches goes from the last rank to
    the first.
    """
    shares = [plan.micros(step, rank) for rank in range(plan.world_size)]
    indices = torch.empty(plan.samples(step), dtype=torch.int64)
    begun = 0
    for number in range(len(shares[0])):
        ranks = range(plan.world_size)
        for rank in reversed(ranks) if number % 2 else ranks:
            size = shares[rank][number]
            at = rank + plan.world_size * (sum(shares[rank][:number]) + torch.arange(size))
            indices[at] = begun + torch.arange(size)
            begun += size
    return indices


def _turned(batches: Tensor, world_size: int, generator: torch.Generator) -> Tensor:
    """The same batches, with the ranks' shares of each in a random order."""
    ranks = torch.rand(len(batches), world_size, generator=generator).argsort(1)
    shares = batches.view(len(batches), -1, world_size)
    return shares.gather(2, ranks[:, None, :].expand_as(shares))


def _numbers(indices: Sequence[int]) -> Tensor:
    return indices.tensor() if isinstance(indices, Permutation) else torch.as_tensor(indices).long()


def _wrong(name: str, problem: str) -> ConfigError:
    return ConfigError(
        [f"data: {name} {problem}; it must hold a whole number of at least 0 for each sample, or be None"]
    )
