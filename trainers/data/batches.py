"""Batches that a loader passes to a training step, and the worker processes that load them."""

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
"""Whether a worker forked now is killed when its rank dies. A worker inherits the rank's open connections, so
that other ranks would notice the death only when the worker ends, up to 5 s later. The kernel sends the
signal when the forking thread ends (prctl(2)), so only the main thread may set it."""

Collate: TypeAlias = Callable[[list[Any]], Any]

_LONGEST_FOLDER = 60
"""Longest temporary folder in bytes: multiprocessing adds about 35 to it, and unix(7) allows 108."""
_SHORT = ("/tmp", "/dev/shm", "/var/tmp")

_NOT_FOR_WORKERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Micro(NamedTuple):
    """A micro-batch: what one forward and backward pass takes."""

    data: Any
    """The collated batch, on the CPU."""
    samples: int
    """Number of samples in it."""
    last: bool
    """Whether it is the last micro-batch of its group."""


class Group(NamedTuple):
    """This rank's micro-batches of one optimizer step."""

    micros: list[Micro]
    """The micro-batches: equally many on every rank."""
    samples: int
    """Number of samples, over all ranks."""


class Pair(NamedTuple):
    """A collated batch, and a collated batch with the same samples twice."""

    once: Any
    twice: Any
    samples: int
    """Number of samples in `once`."""


class Batch(NamedTuple):
    """A batch of a validation or test set."""

    data: Any
    """The collated batch, on the CPU."""
    samples: int
    number: int
    """Its index among the batches of all ranks, from 0."""
    seed: int
    """Seed for random numbers drawn while it is evaluated; the same on any number of ranks."""


class FirstBatch(NamedTuple):
    """The first batch of a validation or test set, and a pair made of some of its samples."""

    batch: Batch
    pair: Pair | None


class TrainingLoader(ABC):
    """Loads this rank's part of the training set in groups, starting at any step of any epoch."""

    dataset: Any
    pair: Pair | None = None
    """Batches with which the loss is checked before the first step (`checks.additivity`)."""

    @property
    @abstractmethod
    def steps(self) -> int | None:
        """Optimizer steps of an epoch, the same on every rank; None: unknown before the epoch ends."""

    @abstractmethod
    def groups(self, epoch: int, consumed: int) -> Iterator[Group]:
        """Iterate over the groups of an epoch, skipping the first `consumed`."""

    @abstractmethod
    def is_over(self, consumed: int) -> bool:
        """Whether the epoch has no group after the first `consumed`; all ranks must pass the same number."""

    def total(self, training: Training) -> int | None:
        """Optimizer steps of the whole training; None: unknown."""
        if training.num_epochs is None or self.steps is None:
            return training.num_steps
        return self.steps * training.num_epochs

    def state_dict(self) -> dict[str, Any]:
        """The loader's state for a checkpoint, in addition to the epoch and its completed steps."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""

    def close(self) -> None:
        """End the workers kept between epochs; the next epoch starts new ones."""

    def load_state_dicts(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from a checkpoint's states that were saved by a different number of ranks.

        Raises:
            ConfigError: this loader cannot.
        """


def drawn_from(dataset: Any) -> frozenset[str]:
    """The random generators that a data set may draw from; only they are seeded before each sample.

    A data set names them in `rng_sources`; lists and TensorDatasets draw nothing. Seeding a generator takes
    longer than reading a row of a tensor.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    if type(dataset) in (TensorDataset, list, tuple):
        return frozenset()
    return declared_generators(dataset, "data")


def draws(collate: Collate) -> bool:
    """Whether a collate function may draw random numbers; only torch's default_collate cannot."""
    return getattr(collate, "__func__", collate) not in (Task.collate, default_collate)


# --- Workers ------------------------------------------------------------------------------------


def loader(
    dataset: Dataset[Any],
    settings: Training | Evaluation,
    training: Training,
    batches: Sampler[Any] | None = None,
    collate: Collate | None = None,
) -> DataLoader[Any]:
    """A DataLoader for the index lists in `batches`; without them, for a set that yields whole batches."""
    workers = settings.num_workers
    if workers:
        _short_names_for_sockets()
        # Not atexit: processes that multiprocessing starts, such as mp.spawn's, do not run it.
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
    """The multiprocessing context of workers: the configuration's, else the program's, else fork on Linux.

    Since Python 3.14 the default on Linux is forkserver, with which each worker would import torch again, the
    data set would be pickled, and a worker would outlive its rank.
    """
    by_the_program: str | None = multiprocessing.get_start_method(allow_none=True)
    if by_the_program == multiprocessing.get_all_start_methods()[0]:
        by_the_program = None  # the default; not necessarily a choice of the program
    usual = "fork" if sys.platform == "linux" else None
    context = multiprocessing.get_context(training.multiprocessing_context or by_the_program or usual)
    return Forking() if context.get_start_method() == "fork" else context


def _short_names_for_sockets() -> None:
    """Make multiprocessing's temporary folder where its sockets' names are short enough.

    Workers pass tensors through sockets in this folder, by default in TMPDIR. If a socket's name exceeds 108
    bytes (unix(7)), as in the job folders of some clusters, no batch ever arrives.
    """
    if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER:
        return
    before = tempfile.tempdir
    try:
        tempfile.tempdir = next((folder for folder in _SHORT if os.access(folder, os.W_OK | os.X_OK)), before)
        multiprocessing.util.get_temp_dir()  # made once in a process, and removed at its end
    finally:
        tempfile.tempdir = before


def _as_it_is(batch: Any) -> Any:
    return batch


def _worker_init(_: int) -> None:
    """Ignore the signals meant for the rank: if one killed a worker, the loader would raise in mid-step.

    torch installs its handler for TERM before this is called. Ctrl-C reaches the whole foreground process
    group.
    """
    for number in _NOT_FOR_WORKERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _NOT_FOR_WORKERS)
    parent = multiprocessing.parent_process()
    if _ends_with_its_rank and parent is not None:
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent.pid:  # the rank died before die_with_parent() took effect
            os._exit(1)


def _end_workers() -> None:
    """Kill workers of loaders still in use, which Python would otherwise wait for when it exits.

    They ignore the TERM that Python sends them.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch would report each worker as killed
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()


def iterate(loader: Iterable[Any]) -> Iterator[Any]:
    """Call `iter(loader)` so that signals meant for the rank do not end its workers.

    Under spawn and forkserver a worker is a new interpreter, which a signal would end before it runs any of
    our code: it inherits the signals blocked, until `_worker_init` ignores them.
    """
    global _ends_with_its_rank
    _ends_with_its_rank = threading.current_thread() is threading.main_thread()
    context = getattr(loader, "multiprocessing_context", None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)
    try:
        if context is not None and context.get_start_method() != "fork":
            resource_tracker.ensure_running()  # it ignores TERM, but other signals would end it
            signal.pthread_sigmask(signal.SIG_BLOCK, _NOT_FOR_WORKERS)  # ensure_running() has unblocked TERM
        return iter(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
