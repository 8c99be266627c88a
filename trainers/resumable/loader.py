"""A data loader that begins at any batch, on any number of ranks and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import torch
from torch.utils.data import default_collate

from castoff.trainers.configuration.config import Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import MapLoader
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.resumable.ranks import place

_CPU = torch.device("cpu")

_OPTIONS = ("pin_memory", "prefetch_factor", "persistent_workers", "multiprocessing_context")
_ARGUMENTS = ("batch_size", "shuffle", "num_workers", "collate_fn", "drop_last", "seed", *_OPTIONS)

_OF_TORCH = {
    "sampler": "the ranks share each epoch without one; leave it out, and write shuffle=True or False",
    "batch_sampler": "the ranks share each epoch without one; write batch_size and shuffle instead",
    "generator": "the order depends on the seed and the epoch alone; write seed=0, say, instead",
    "worker_init_fn": "the random numbers of a sample depend on the seed, the epoch and its index alone; "
    "leave it out",
}
"""Arguments of torch's DataLoader that would change the order of samples, and what to do instead."""


class Loader:
    """Loads a map-style training set, as torch's DataLoader and DistributedSampler do together.

    Ranks share each epoch, without repeated samples. The order depends on (seed, epoch) alone, and a sample's
    random numbers on (seed, epoch, index), so that workers and ranks may change. Each iteration is an epoch;
    the one after `load_state_dict` continues within its epoch. `options` are torch's: `pin_memory`,
    `prefetch_factor`, `persistent_workers`, `multiprocessing_context`.

    Raises:
        TypeError: an option is not one of these.
        ValueError: `batch_size` or `num_workers` is out of range.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        seed: int = 0,
        **options: Any,
    ):
        _check(batch_size, num_workers, options)
        self.dataset = dataset
        self.batch_size = batch_size
        """Samples of each rank's batch."""
        self._collate = default_collate if collate_fn is None else collate_fn
        self._training = Training(
            path="",
            optimizer_type=None,
            batch_size=batch_size,
            shuffle=shuffle,
            num_workers=num_workers,
            drop_last=drop_last,
            seed=seed,
            **options,
        )
        self._epoch = 0
        self._consumed = 0
        self._continues = True
        """Whether the next iteration continues the epoch, not begins another."""
        self._made: tuple[tuple[int, int], MapLoader] | None = None

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return self._loader().steps

    def __iter__(self) -> Iterator[Any]:
        """This rank's batches of the next epoch, or the rest of a resumed one."""
        if not self._continues or self._consumed >= len(self):
            self._epoch, self._consumed = self._epoch + (self._consumed > 0), 0
        self._continues = False
        yield from self.batches(self._epoch, self._consumed)

    def batches(self, epoch: int, consumed: int) -> Iterator[Any]:
        """This rank's batches of an epoch, without the first `consumed`."""
        self._epoch, self._consumed = epoch, consumed
        for group in self._loader().groups(epoch, consumed):
            self._consumed += 1
            yield group.micros[0].data

    def state_dict(self) -> dict[str, Any]:
        """The position, the same on every rank: batches that were returned count as consumed. The end of an
        epoch is the beginning of the next.
        """
        over = self._consumed >= len(self)
        epoch, consumed = (self._epoch + 1, 0) if over else (self._epoch, self._consumed)
        return {"epoch": epoch, "consumed": consumed, **self.fixed()}

    @contextmanager
    def returning(self) -> Iterator[None]:
        """While this lasts, the last batch that was returned does not count as consumed."""
        self._consumed -= 1
        try:
            yield
        finally:
            self._consumed += 1

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position, on any number of ranks with the same global batch.

        Raises:
            ConfigError: the position is that of another order of batches.
        """
        self.check(state)
        self._epoch, self._consumed, self._continues = state["epoch"], state["consumed"], True

    def fixed(self) -> dict[str, Any]:
        """What must not change while an epoch lasts."""
        size, training = place()[1], self._training
        return {
            "samples": len(self.dataset),
            "batch_size x ranks": training.batch_size * size,
            "shuffle": training.shuffle,
            "drop_last": training.drop_last,
            "seed": training.seed,
        }

    def check(self, state: dict[str, Any]) -> None:
        """Compare with a saved state.

        Raises:
            ConfigError: they differ.
        """
        now = self.fixed()
        changed = [
            f"resumable.Loader: {name} is {now[name]}, but was {state[name]} in the checkpoint, where its "
            f"position within the epoch is {state['consumed']} batches; use {state[name]} again"
            for name in now
            if now[name] != state[name]
        ]
        if changed and state["consumed"]:
            raise ConfigError(changed)

    def _loader(self) -> MapLoader:
        """The loader for the current number of ranks, which is known late: a group may not exist yet."""
        here = place()
        if self._made is None or self._made[0] != here:
            rank, size = here
            context = RankContext(rank, size, _CPU)
            try:
                made = MapLoader(self.dataset, self._training, context, self._collate, least=1)
            except ConfigError as error:
                raise error.reworded(lambda problem: problem.replace("training.", "")) from None
            self._made = here, made
        return self._made[1]


def _check(batch_size: int, num_workers: int, options: Mapping[str, Any]) -> None:
    """Check the arguments of a Loader.

    Raises:
        TypeError: an option is not known.
        ValueError: a number is out of range.
    """
    for name in options:
        if name in _OF_TORCH:
            raise TypeError(f"resumable.Loader takes no {name}: {_OF_TORCH[name]}")
        if name not in _OPTIONS:
            meant = get_close_matches(name, _ARGUMENTS, 1)
            hint = f"did you mean {meant[0]}?" if meant else f"it has {', '.join(_ARGUMENTS)}"
            raise TypeError(f"resumable.Loader has no argument {name}; {hint}")
    for name, number, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
        if not isinstance(number, Integral) or number < least:
            raise ValueError(
                f"resumable.Loader: {name} is {number!r}, but must be an integer from {least} on"
            )
