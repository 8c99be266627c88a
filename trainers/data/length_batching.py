"""Batches of samples of similar lengths, so that little is padded; the order of an epoch stays random."""

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
"""Into so many parts an epoch is cut at least, among which chance deals the samples: sorted as a whole, a
set has the same batches in every epoch. Of too few samples for two parts, neighbours change places."""

_MOST, _LEAST = 50, 4
"""So many global batches come from a part, where there are so many."""

_SAMPLES = 64
"""And so many samples at least: of fewer there are too few that are alike."""


class FixedOrder:
    """An epoch's order, written down."""

    def __init__(self, order: Tensor):
        self._order = order

    def at(self, places: Sequence[int]) -> list[int]:
        """The samples in many places."""
        found: list[int] = self._order[torch.tensor(places, dtype=torch.int64)].tolist()
        return found


def lengths_of(dataset: Any) -> Tensor | None:
    """How long a data set says that its samples are, in its attribute `lengths`; None: it does not.

    A part of a set has those of its samples.

    Raises:
        ConfigError: these are not whole numbers, one of each sample.
    """
    given = getattr(dataset, "lengths", None)
    if given is None:
        whole = lengths_of(dataset.dataset) if isinstance(dataset, Subset) else None
        return None if whole is None else whole[_numbers(dataset.indices)]
    name = f"{type(dataset).__name__}.lengths"
    try:
        lengths = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise _wrong(name, f"is {in_words(given)}") from error
    if lengths.dim() != 1 or len(lengths) != len(dataset):
        raise _wrong(name, f"has the shape {tuple(lengths.shape)}, but the set {len(dataset)} samples")
    if not len(lengths):
        return lengths.long()
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise _wrong(name, f"has numbers of {lengths.dtype}")
    if lengths.min() < 0:
        raise _wrong(name, f"has {int(lengths.min())}")
    return lengths.long()


def longest_first(lengths: Tensor) -> list[int]:
    """The samples of a set that is only looked at: what takes most memory comes first."""
    found: list[int] = lengths.argsort(descending=True, stable=True).tolist()
    return found


def length_bucketed(
    lengths: Tensor, plan: ShardPlan, order: Permutation, seed: int, epoch: int
) -> FixedOrder:
    """An epoch's order in which micro-batches have samples of similar lengths, on every rank.

    Parts of the random `order` are sorted, but for a little chance in small sets, and cut into global
    batches, which take turns at random; the steps that have fewer samples are the last, as they were
    dealt. Which samples are trained on together depends only on the number of samples and the global batch
    size. In a step each micro-batch has neighbours; which rank has the longest ones is drawn, and where it
    has several micro-batches, it has short ones as well.
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
    """The samples of the whole global batches (number, samples), sorted, and those of the smaller steps.

    Each of these is a run of the last part, at a place that is drawn.
    """
    sizes = [plan.samples(step) for step in range(whole, plan.steps)]
    windows = _windows(whole, plan.global_batch, len(taken))
    ends = [whole * (number + 1) // windows * plan.global_batch for number in range(windows)]
    ends[-1] = len(taken)
    window = torch.bucketize(torch.arange(len(taken)), torch.tensor(ends), right=True)
    found = taken[(window * (lengths.max() + 1) + lengths[taken]).argsort(stable=True)]
    if windows == 1:
        found = found[_near_by(len(found), plan.global_batch, generator)]
    rest = []
    begin = ends[-2] if windows > 1 else 0
    for size in sizes:
        batches = (len(found) - begin - size) // plan.global_batch
        first = begin + int(torch.randint(batches + 1, (), generator=generator)) * plan.global_batch
        rest.append(_by_length(found[first : first + size].unsqueeze(0), lengths).squeeze(0))
        found = torch.cat([found[:first], found[first + size :]])
    return _by_length(found.view(whole, plan.global_batch), lengths), rest


def _near_by(number: int, global_batch: int, generator: torch.Generator) -> Tensor:
    """So many places in a random order, each about half a global batch from where it was, at most."""
    reach = global_batch / 2 + 2
    places = torch.arange(number) + reach * torch.rand(number, generator=generator)
    return places.argsort(stable=True)


def _by_length(batches: Tensor, lengths: Tensor) -> Tensor:
    """Batches (number, samples), each with its shortest sample first."""
    return batches.gather(1, lengths[batches].argsort(dim=1, stable=True))


def _windows(whole: int, global_batch: int, samples: int) -> int:
    """Into how many parts an epoch is cut."""
    wanted = max(_WINDOWS, -(-whole // _MOST))
    return max(1, min(wanted, samples // _SAMPLES, whole // _LEAST))


def _places(plan: ShardPlan, step: int) -> Tensor:
    """Which of a step's sorted samples comes first, second …: ranks take turns, and each its neighbours.

    Every second micro-batch is dealt from the last rank to the first.
    """
    shares = [plan.micros(step, rank) for rank in range(plan.world_size)]
    found = torch.empty(plan.samples(step), dtype=torch.int64)
    begun = 0
    for number in range(len(shares[0])):
        ranks = range(plan.world_size)
        for rank in reversed(ranks) if number % 2 else ranks:
            size = shares[rank][number]
            at = rank + plan.world_size * (sum(shares[rank][:number]) + torch.arange(size))
            found[at] = begun + torch.arange(size)
            begun += size
    return found


def _turned(batches: Tensor, world_size: int, generator: torch.Generator) -> Tensor:
    """The same batches, each with its ranks in an order of its own."""
    ranks = torch.rand(len(batches), world_size, generator=generator).argsort(1)
    shares = batches.view(len(batches), -1, world_size)
    return shares.gather(2, ranks[:, None, :].expand_as(shares))


def _numbers(indices: Sequence[int]) -> Tensor:
    return indices.tensor() if isinstance(indices, Permutation) else torch.as_tensor(indices).long()


def _wrong(name: str, problem: str) -> ConfigError:
    return ConfigError(
        [f"data: {name} {problem}; it takes a whole number of at least 0 for each sample, or None"]
    )
