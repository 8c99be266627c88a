"""Streamed training sets: how ranks share them, agree on the end, and resume.

Each worker of each rank reads a part of the stream: the result of the data set's `shard(num_shards=,
index=)`, else every n-th element, with n workers on all ranks. Each batch carries its worker's position after
it, so that a checkpoint records the samples that were trained on, not those loaded ahead.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count, islice
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from castoff.trainers.configuration.config import Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.batches import (
    Collate,
    Group,
    Micro,
    TrainingLoader,
    drawn_from,
    draws,
    iterate,
    loader,
)
from castoff.trainers.data.same_data import agree_on_stream
from castoff.trainers.data.sample_content import Content
from castoff.trainers.data.stream_beginning import Beginning, Look
from castoff.trainers.distributed.private_torch import hide_worker
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import SAMPLE, Stream, seed_all
from castoff.trainers.task.own_generators import warn_of_own_generators


class _Loaded(NamedTuple):
    """A micro-batch, and its worker's position after it."""

    data: Any
    samples: int
    worker: int
    stand: bytes
    """The position, pickled in the worker: the data set may change its state dict while later batches are
    loaded."""
    first: Beginning | None = None
    """Only in a worker's first batch, and only if the beginning of the stream is checked."""


class _Mark(NamedTuple):
    """A rank's position in the stream after a step."""

    turn: int
    """Index of the worker that delivers the next batch."""
    stands: dict[int, bytes]
    """The pickled position of each worker that has delivered a batch."""


_BEGINNING = _Mark(0, {})


class IterableLoader(TrainingLoader):
    """Loads a torch IterableDataset; resumes only with as many ranks and workers as before."""

    def __init__(
        self, dataset: Any, training: Training, context: RankContext, collate: Collate, least: int = 2
    ):
        self.dataset = dataset
        self._training = training
        self._least = training.batch_size if training.drop_last else min(least, training.batch_size)
        """The fewest samples that a last, incomplete batch may have; BatchNorm cannot train on one sample."""
        self._context = context
        self._collate = collate
        self._generators = drawn_from(dataset)
        self._beginning = pickle.dumps(dataset.state_dict()) if _keeps_state(dataset) else None
        """The data set's state before the first epoch, since reading an epoch in this process changes it."""
        self._workers = max(training.num_workers, 1)
        self._accumulation = training.gradient_accumulation_steps
        self._epoch = 0
        self._marks: dict[int, _Mark] = {}
        """Positions by the number of completed steps of the epoch; the last two are kept, because the group
        delivered last may not have been trained on yet."""
        self._looks = training.check_first_step
        """Whether the beginning of the stream is still to be checked."""
        self._have_more: Callable[[], bool] = lambda: True
        """Returns whether another group follows those already delivered."""

    @property
    def steps(self) -> None:
        """None: the number of steps is unknown before the epoch ends."""
        return None

    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """Iterate over the groups of an epoch, skipping the first `consumed`, until some rank has no more.

        All ranks must iterate in step. Ranks ask each other one group ahead whether all have another, so that
        no rank waits for the answer.

        Raises:
            ConfigError: some rank has no group at all, or the position after `consumed` steps is unknown.
        """
        mark = self._mark(epoch, consumed)
        self._epoch, self._marks = epoch, {consumed: mark}
        looks, self._looks = self._looks and mark is _BEGINNING, False
        loaded = iterate(self._loader(epoch, mark, looks))
        ahead = list(islice(loaded, self._accumulation))
        agreed = self._agreement(ahead)
        size, samples = agreed()
        self._have_more = lambda: agreed()[0] > 0
        if not size and not consumed:
            raise ConfigError([self._nothing()])
        if looks and size:
            self._look_at(ahead[0].first, epoch)
        while size:
            group = ahead[:size]
            for batch in group:
                stands = {**mark.stands, batch.worker: batch.stand}
                mark = _Mark((batch.worker + 1) % self._workers, stands)
            last_of_all = size < self._accumulation
            ahead = [] if last_of_all else list(islice(loaded, self._accumulation))
            agreed = self._agreement(ahead)
            self._marks = {consumed: self._marks[consumed], consumed + 1: mark}
            consumed += 1
            micros = [Micro(each.data, each.samples, each is group[-1]) for each in group]
            yield Group(micros, samples)
            size, samples = agreed()

    def is_over(self, consumed: int) -> bool:
        """Whether the epoch has no group after the first `consumed`; all ranks must pass the same number."""
        return consumed == max(self._marks, default=-1) and not self._have_more()

    def state_dict(self) -> dict[str, Any]:
        """This rank's position, for a checkpoint."""
        marks = {
            step: {"turn": mark.turn, "stands": {at: pickle.loads(each) for at, each in mark.stands.items()}}
            for step, mark in self._marks.items()
        }
        more = self._have_more()
        return {**self._shape(), "epoch": self._epoch, "marks": marks, "more": more}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint.

        Raises:
            ConfigError: the checkpoint was made with another number of ranks or workers.
        """
        problems = [
            f"{field}: there are {mine} {what}, but the checkpoint was made with {state[name]}, and an "
            f"iterable training set resumes only with the same number; use {state[name]}, or start over "
            "with training.fresh: true"
            for (name, mine), (field, what) in zip(
                self._shape().items(),
                (("parallel.world_size", "ranks"), ("training.num_workers", "workers")),
                strict=True,
            )
            if mine != state[name]
        ]
        if problems:
            raise ConfigError(problems)
        self._epoch, more = state["epoch"], state["more"]
        self._have_more = lambda: more
        self._marks = {
            step: _Mark(mark["turn"], {at: pickle.dumps(each) for at, each in mark["stands"].items()})
            for step, mark in state["marks"].items()
        }

    def load_state_dicts(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Refuse to resume with another number of ranks.

        Raises:
            ConfigError: always.
        """
        self.load_state_dict(states[0])

    def _shape(self) -> dict[str, int]:
        return {"world_size": self._context.world_size, "workers": self._workers}

    def _mark(self, epoch: int, consumed: int) -> _Mark:
        if epoch == self._epoch and consumed in self._marks:
            return self._marks[consumed]
        if consumed:
            raise ConfigError(
                [
                    f"training: the position in the training set after {consumed} steps of epoch "
                    f"{epoch + 1} is unknown; load the loader's state from the checkpoint first"
                ]
            )
        return _BEGINNING

    def _look_at(self, beginning: Beginning | None, epoch: int) -> None:
        assert beginning is not None
        self.pair = beginning.pair
        if self._context.is_main and not _keeps_state(self.dataset):
            warn_of_own_generators("train", beginning.drew)

        def again() -> list[Content]:
            first = next(iterate(self._loader(epoch, _BEGINNING, looks=True))).first
            return [] if first is None else first.contents

        agree_on_stream(type(self.dataset).__name__, beginning.contents, again, self._context)

    def _loader(self, epoch: int, mark: _Mark, looks: bool) -> Any:
        part = _Part(
            self.dataset,
            self._training,
            self._collate,
            self._generators,
            least=self._least,
            beginning=self._beginning,
            epoch=epoch,
            mark=mark,
            rank=self._context.rank,
            world_size=self._context.world_size,
            looks=looks,
        )
        return loader(part, self._training, self._training)

    def _agreement(self, ahead: list[_Loaded]) -> Callable[[], tuple[int, int]]:
        """Start exchanging which micro-batches each rank has for its next group; calling the result waits for
        it.

        The result returns (micro-batches per rank in the next step, their samples on all ranks), or (0, 0) at
        the end of the epoch.
        """
        context = self._context
        samples = list(accumulate(batch.samples for batch in ahead))
        mine = [[1, count] for count in samples] + [[0, 0]] * (self._accumulation - len(ahead))
        group = context.flag_group() if context.distributed else None
        counts = torch.tensor(mine, device=context.device if context.distributed and group is None else None)
        work = dist.all_reduce(counts, group=group, async_op=True) if context.distributed else None
        ranks = context.world_size if context.distributed else 1

        def agreed() -> tuple[int, int]:
            if work is not None:
                work.wait()
            everywhere = [count for have, count in counts.tolist() if have == ranks]
            if not everywhere or (self._training.drop_last and len(everywhere) < self._accumulation):
                return 0, 0
            return len(everywhere), everywhere[-1]

        return agreed

    def _nothing(self) -> str:
        parts = self._context.world_size * self._workers
        leave = ", or leave drop_last out" if self._training.drop_last else ""
        return (
            f"data: the training set {type(self.dataset).__name__} has too few samples for every rank to "
            f"take one step: {self._context.world_size} ranks x {self._workers} workers read {parts} "
            f"parts of it in batches of {self._training.batch_size}; use fewer ranks, fewer workers or a "
            f"smaller batch_size{leave}"
        )


class _Part(IterableDataset[_Loaded]):
    """The batches of an epoch that a rank's workers read."""

    def __init__(
        self,
        dataset: Any,
        training: Training,
        collate: Collate,
        generators: frozenset[str],
        *,
        least: int,
        beginning: bytes | None,
        epoch: int,
        mark: _Mark,
        rank: int,
        world_size: int,
        looks: bool,
    ):
        self._dataset = dataset
        self._collate = collate
        self._batches_draw = draws(collate)
        self._generators = generators
        self._stream = Stream(SAMPLE, training.seed, epoch)
        self._epoch = epoch
        self._mark = mark
        self._rank = rank
        self._world_size = world_size
        self._workers = max(training.num_workers, 1)
        self._beginning = beginning
        self._shards = world_size * self._workers
        self._batch_size = training.batch_size
        self._least = least
        self._looks = looks
        self._look: Look | None = None

    def __iter__(self) -> Iterator[_Loaded]:
        """Iterate over this worker's batches from its position on."""
        worker = (_hidden_worker() + self._mark.turn) % self._workers
        dataset, elements = self._opened(worker)
        batch: list[Any] = []
        for taken, element in elements:
            batch.append(element)
            if len(batch) == self._batch_size:
                yield self._loaded(batch, worker, dataset, taken)
                batch = []
        if len(batch) >= self._least:
            yield self._loaded(batch, worker, dataset, taken)

    def _loaded(self, batch: list[Any], worker: int, dataset: Any, taken: int) -> _Loaded:
        if self._batches_draw:
            seed_all(self._stream.seed(self._rank, worker, taken))
        stand = {"taken": taken, "own": dataset.state_dict() if _keeps_state(dataset) else None}
        loaded = _Loaded(self._collate(batch), len(batch), worker, pickle.dumps(stand))
        if self._look is not None:
            loaded = loaded._replace(first=self._look.beginning(batch, self._collate))
            self._look = None
        return loaded

    def _opened(self, worker: int) -> tuple[Any, Iterator[tuple[int, Any]]]:
        """A worker's data set, and pairs of (elements read from it so far, element)."""
        index = self._rank + self._world_size * worker
        dataset = self._dataset
        shards_itself = callable(getattr(dataset, "shard", None))
        if shards_itself:
            dataset = dataset.shard(num_shards=self._shards, index=index)
        saved = self._mark.stands.get(worker)
        stand = pickle.loads(saved) if saved else {"taken": 0, "own": None}
        if saved is None and dataset is self._dataset and self._beginning is not None:
            dataset.load_state_dict(pickle.loads(self._beginning))
        if callable(getattr(dataset, "set_epoch", None)):
            dataset.set_epoch(self._epoch)
        if stand["own"] is not None:
            dataset.load_state_dict(stand["own"])
        if self._looks:
            self._look = Look(dataset)
        return dataset, self._elements(dataset, index, stand, shards_itself)

    def _elements(
        self, dataset: Any, index: int, stand: dict[str, Any], shards_itself: bool
    ) -> Iterator[tuple[int, Any]]:
        """Read elements, seeding the generators before each, even if another worker takes it or it is
        skipped: so all workers shuffle the stream in the same way.
        """
        taken = stand["taken"]
        seed_all(self._stream.seed(), self._generators)
        elements = iter(dataset)
        if self._look is not None and not shards_itself:
            elements = self._look.passing(elements)
        elif self._look is not None and self._world_size > 1:
            seed_all(self._stream.seed(), self._generators)
            self._look.read(lambda: self._dataset.shard(num_shards=self._shards, index=0))
        for number in count(0 if stand["own"] is None else taken):
            place_in_all = number * self._shards + index if shards_itself else number
            seed_all(self._stream.seed(place_in_all), self._generators)
            try:
                element = next(elements)
            except StopIteration:
                return
            if number >= taken and (shards_itself or number % self._shards == index):
                yield number + 1, element


def _keeps_state(dataset: Any) -> bool:
    return all(callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict"))


def _hidden_worker() -> int:
    """This worker's index; from then on, hide the other workers from the data set.

    A data set that shards itself by `get_worker_info()`, as torch's documentation shows, would otherwise be
    sharded twice, and most of its elements would never be read.
    """
    worker = get_worker_info()
    hide_worker()
    return 0 if worker is None else worker.id
