"""What a loader passes to a training step, and the worker processes that load it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, default_collate

from castoff.trainers.configuration.config import Evaluation, Training
from castoff.trainers.distributed.forking import Forking
from castoff.trainers.distributed.private_torch import die_with_parent
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task import Task
from castoff.trainers.task.contract import declared_generators

_ends_with_its_rank = False
"""Whether a worker that is forked now is killed when its rank dies. It has the rank's connections to other
ranks open: those would wait for it until it finds out, after up to 5 s. The kernel counts the thread that
forks it, and the main one alone is there to the end."""

Collate: TypeAlias = Callable[[list[Any]], Any]

_LONGEST_FOLDER = 60
"""Bytes of a folder's name: multiprocessing adds some 35, and a spare."""
_SHORT = ("/tmp", "/dev/shm", "/var/tmp")

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
    """This rank's micro-batches of one optimizer step."""

    micros: list[Micro]
    """As many on every rank."""
    samples: int
    """Samples of all ranks together."""


class Pair(NamedTuple):
    """A batch, and one of the same samples twice, each as training would have it."""

    once: Any
    twice: Any
    samples: int
    """Samples of `once`."""


class Batch(NamedTuple):
    """A batch that is only looked at."""

    data: Any
    """Collated, on the CPU."""
    samples: int
    number: int
    """Its place among the batches of all ranks."""
    seed: int
    """Seeds what is random while it is judged; the same on any number of ranks."""


class FirstBatch(NamedTuple):
    """The first batch of a set that a model is judged by, and a pair of some of its samples."""

    batch: Batch
    pair: Pair | None


class TrainingLoader(ABC):
    """This rank's part of the training set, in groups, from any step of any epoch on."""

    dataset: Any
    pair: Pair | None = None
    """For a look at the loss, before the first step."""

    @property
    @abstractmethod
    def steps(self) -> int | None:
        """Optimizer steps of an epoch, on every rank; None: nobody knows before its end."""

    @abstractmethod
    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """The groups of an epoch, without the first `consumed`."""

    @abstractmethod
    def is_over(self, consumed: int) -> bool:
        """Whether the epoch has no group after the first `consumed`; all ranks must ask alike."""

    def total(self, training: Training) -> int | None:
        """Optimizer steps of the whole training; None: nobody knows."""
        if training.num_epochs is None or self.steps is None:
            return training.num_steps
        return self.steps * training.num_epochs

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, beside the epoch and the steps of it that are done."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""

    def close(self) -> None:
        """End the workers that it keeps from one epoch to the next; another epoch has them begin again."""

    def load_state_dicts(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from the states of another number of ranks.

        Raises:
            ConfigError: that cannot be.
        """


def drawn_from(dataset: Any) -> frozenset[str]:
    """The generators that a data set may draw from: seeding them costs more than a sample of a tensor.

    It says so itself by `rng_sources`; a list and torch's TensorDataset draw nothing.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    if type(dataset) in (TensorDataset, list, tuple):
        return frozenset()
    return declared_generators(dataset, "data")


def draws(collate: Collate) -> bool:
    """Whether a task makes batches in its own way, and so may draw from any generator; torch's does not."""
    return getattr(collate, "__func__", collate) not in (Task.collate, default_collate)


# --- Workers ------------------------------------------------------------------------------------


def loader(
    dataset: Dataset[Any],
    settings: Training | Evaluation,
    training: Training,
    batches: Sampler[Any] | None = None,
    collate: Collate | None = None,
) -> DataLoader[Any]:
    """torch's loader of what `batches` name, or of a stream that is in batches already."""
    workers = settings.num_workers
    if workers:
        _short_names_for_sockets()
        # Not by atexit, which a process of multiprocessing, as of mp.spawn, does not call.
        multiprocessing.util.Finalize(None, _end_workers, exitpriority=1)
    return DataLoader(
        dataset,
        batch_size=None if batches is None else 1,
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=collate or _as_it_is,
        pin_memory=settings.pin_memory and torch.accelerator.is_available(),
        worker_init_fn=_worker_init,
        multiprocessing_context=_context(training) if workers else None,
        # Workers of a stream hold one epoch of it.
        persistent_workers=settings.persistent_workers and workers > 0 and batches is not None,
        prefetch_factor=settings.prefetch_factor if workers else None,
        # iter() draws a seed from a generator: from the global one it would shift all that follows.
        generator=torch.Generator().manual_seed(training.seed),
    )


def _context(training: Training) -> BaseContext:
    """How workers start: as the configuration or the program says, else by forking on Linux.

    Since Python 3.14 its own default there is forkserver: each worker would import torch again, the set would
    be pickled, and a worker would outlive its rank.
    """
    by_the_program: str | None = multiprocessing.get_start_method(allow_none=True)
    if by_the_program == multiprocessing.get_all_start_methods()[0]:
        by_the_program = None  # or by whatever used Python's default first
    usual = "fork" if sys.platform == "linux" else None
    context = multiprocessing.get_context(training.multiprocessing_context or by_the_program or usual)
    return Forking() if context.get_start_method() == "fork" else context


def _short_names_for_sockets() -> None:
    """Have multiprocessing's folder where names are short enough for its sockets.

    Workers hand tensors over through sockets that it makes there, in TMPDIR. Where their names would pass
    108 bytes (unix(7)), as in the folders that clusters give to jobs, a batch never comes.
    """
    if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER:
        return
    usual = tempfile.tempdir
    try:
        tempfile.tempdir = next((place for place in _SHORT if os.access(place, os.W_OK | os.X_OK)), usual)
        multiprocessing.util.get_temp_dir()  # made once in a process, and removed at its end
    finally:
        tempfile.tempdir = usual


def _as_it_is(batch: Any) -> Any:
    return batch


def _worker_init(_: int) -> None:
    """Leave signals to the rank: a worker that dies of one makes the loader raise in mid-step.

    torch has installed a handler of its own for TERM before this is called. Ctrl-C reaches the whole
    foreground group.
    """
    for number in _NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_WORKERS)
    parent = multiprocessing.parent_process()
    if _ends_with_its_rank and parent is not None:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent.pid:  # it was killed before that
            os._exit(1)


def _end_workers() -> None:
    """Before Python waits, at its end, for workers of a loader that is still in use.

    They ignore the TERM that it sends them.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would report each as killed
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()


def iterate(loader: Iterable[Any]) -> Iterator[Any]:
    """`iter(loader)`, with workers that hear none of the signals that are for the rank.

    Under spawn and forkserver a worker is a new interpreter, which a signal would end before its
    first line of ours: what it inherits blocks the signals until it ignores them.
    """
    global _ends_with_its_rank
    _ends_with_its_rank = threading.current_thread() is threading.main_thread()
    context = getattr(loader, "multiprocessing_context", None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        if context is not None and context.get_start_method() != "fork":
            resource_tracker.ensure_running()  # it ignores TERM itself, and would die of the others
            signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)  # it has unblocked TERM
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
