"""Decides which samples the ranks train on together in each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.permutation import AT_ONCE, Permutation
from castoff.trainers.distributed.randomness import ORDER, derived


class ShardPlan(NamedTuple):
    """An epoch of `length` samples cut into steps of `global_batch`, for any number of ranks."""

    length: int
    global_batch: int
    batch_size: int
    """The most samples in a micro-batch."""
    world_size: int
    steps: int
    even_from: int
    """Index of the last step but one, if the last two share their samples evenly; else at least `steps`."""

    def samples(self, step: int) -> int:
        """How many samples the ranks take together in a step."""
        first, last = self.bounds(step)
        return last - first

    def bounds(self, step: int) -> tuple[int, int]:
        """The range (first, end) of a step's samples in the epoch's order."""
        first = step * self.global_batch
        if step < self.even_from:
            return first, min(first + self.global_batch, self.length)
        middle = (self.even_from * self.global_batch + self.length + 1) // 2
        return (first, middle) if step == self.even_from else (middle, self.length)

    def micros(self, step: int, rank: int) -> tuple[int, ...]:
        """The sizes of a rank's micro-batches, which differ by at most one; every rank has as many."""
        return _micros(self.samples(step), rank, self.world_size, self.batch_size)

    def smallest(self, step: int) -> int:
        """The size of the smallest micro-batch of any rank."""
        return self.micros(step, self.world_size - 1)[-1]


def shard(
    length: int, batch_size: int, accumulation: int, world_size: int, *, drop_last: bool, least: int = 2
) -> ShardPlan:
    """Cut an epoch into steps.

    Each step takes a global batch of batch_size * accumulation * world_size samples, and the last step takes
    the remainder. If the remainder is less than half a global batch, the last two steps share their samples
    evenly. This depends only on the length and the global batch. The remainder is dropped if `drop_last` is
    set, or if one of its micro-batches would have fewer than `least` samples: 2 for BatchNorm, which cannot
    train on one.

    Raises:
        ConfigError: no step is left.
    """
    if length < 1:
        raise ConfigError(["data: the training set is empty"])
    global_batch = batch_size * accumulation * world_size
    whole, rest = divmod(length, global_batch)
    only_whole = ShardPlan(length, global_batch, batch_size, world_size, whole, whole)
    if drop_last and not whole:
        raise ConfigError(
            [
                f"training.drop_last: the training set has {length} samples, fewer than one global batch "
                f"of {batch_size} x {accumulation} x {world_size} (batch_size x "
                "gradient_accumulation_steps x ranks), so that all would be dropped; lower "
                "training.batch_size or set drop_last: false"
            ]
        )
    if drop_last or not rest:
        return only_whole
    even_from = whole - 1 if whole and 2 * rest < global_batch else whole + 1
    plan = only_whole._replace(steps=whole + 1, even_from=even_from)
    least = min(least, batch_size)
    if all(plan.smallest(step) >= least for step in range(max(whole - 1, 0), whole + 1)):
        return plan
    if length < world_size:
        raise ConfigError(
            [
                f"data: the training set has {length} samples, fewer than there are ranks "
                f"({world_size}); use fewer ranks"
            ]
        )
    if not whole:
        raise ConfigError(
            [
                f"training.batch_size: is {batch_size}, but with {length} training samples on {world_size} "
                f"ranks a micro-batch has {plan.smallest(0)}, and needs {least}{_why(least)}; take fewer "
                "ranks, another batch_size, or batch_size: 1"
            ]
        )
    return only_whole


def _why(least: int) -> str:
    return " for BatchNorm" if least > 1 else ""


class Order(Protocol):
    """The order in which an epoch takes the samples."""

    def at(self, places: Sequence[int]) -> list[int]:
        """The samples at these positions of the order."""
        ...


def order_of(length: int, seed: int, epoch: int, *, shuffle: bool) -> Permutation | range:
    """The order in which an epoch takes the samples."""
    return Permutation(length, derived(ORDER, seed, epoch)) if shuffle else range(length)


def micro_batches(plan: ShardPlan, order: Order | range, rank: int, consumed: int) -> Iterator[list[int]]:
    """A rank's micro-batches from step `consumed` on: every world_size-th sample of each step."""
    steps_at_once = max(1, AT_ONCE * plan.world_size // plan.global_batch)
    for first in range(consumed, plan.steps, steps_at_once):
        steps = range(first, min(first + steps_at_once, plan.steps))
        places = [place for step in steps for place in _share(plan, step, rank)]
        samples = places if isinstance(order, range) else order.at(places)
        begin = 0
        for step in steps:
            for size in plan.micros(step, rank):
                yield samples[begin : begin + size]
                begin += size


@lru_cache  # all but an epoch's last steps have the same sizes
def _micros(samples: int, rank: int, world_size: int, batch_size: int) -> tuple[int, ...]:
    count = -(-samples // (world_size * batch_size))
    share = (samples - rank + world_size - 1) // world_size
    return tuple((share + count - 1 - number) // count for number in range(count))


def _share(plan: ShardPlan, step: int, rank: int) -> range:
    """The positions of a rank's samples of a step in the epoch's order."""
    first, last = plan.bounds(step)
    return range(first + rank, last, plan.world_size)
