"""How fast training is and what limits it, from cheap marks that every rank takes.

Clocks of the host alone are read in a step: nothing waits for the device. Over ranks all is summed
in the message of the loss's sums, at log steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from typing import TypeVar

import torch
from torch import Tensor

from castoff.trainers.distributed.devices import Use, use_of
from castoff.trainers.distributed.private_torch import after_backward
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.reporting.monitoring import columns, devices_of_ranks, gathered, losses_of_ranks
from castoff.trainers.reporting.running import Running

Batch = TypeVar("Batch")

TIMED = (
    "samples_per_second",
    "tokens_per_second",
    "step_time",
    "data_wait",
    "communication",
    "memory_gb",
    "memory_allocated_gb",
    "memory_reserved_gb",
    "memory_balance",
    "utilization",
    "utilization_min",
    "slowest_rank",
    "slowest_rank_lag",
)
"""Metrics that no two runs have alike, however exactly they repeat each other."""

_SAMPLES = 8
"""Steps of an interval in which communication is timed."""


class Throughput:
    """One rank's marks since the last report.

    `log_every`: optimizer steps between two reports.
    """

    def __init__(self, context: RankContext, log_every: int, clock: Callable[[], float] = time.perf_counter):
        self._context = context
        self._every = max(1, log_every // _SAMPLES)
        self._clock = clock
        self._step_began = clock()
        self._begin()

    def waits(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Pass batches on, and count the time to get each as data wait."""
        wanted = iter(batches)
        while True:
            self._step_began = began = self._clock()
            try:
                batch = next(wanted)
            except StopIteration:
                return
            finally:
                self._data_wait += self._clock() - began
            yield batch

    def reduction(self, total: Tensor) -> AbstractContextManager[None]:
        """For the backward from `total` that reduces gradients: times communication in some steps.

        What is timed is communication that computing does not hide: from when this rank's own
        backward is done until the gradients of all are there. Waiting for slower ranks is in it.
        """
        if self._steps % self._every or not self._context.distributed or not total.requires_grad:
            return nullcontext()
        return self._timed(total)

    def step(self, samples: int) -> float:
        """Count a finished optimizer step in which this rank had `samples` samples; returns the seconds
        since it began to wait for them.
        """
        self._steps += 1
        self._samples += samples
        return self._clock() - self._step_began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of this context (a validation, a checkpoint) out of training's time."""
        began = self._clock()
        try:
            yield
        finally:
            self._away += self._clock() - began

    def interval(self) -> tuple[list[float], float]:
        """This rank's numbers, to be summed over ranks, and its seconds of computing; begins anew."""
        taken = max(self._clock() - self._began - self._away, 0.0)
        reduced = [_seconds(*marks) for marks in self._reductions]
        exposed = min(self._steps * sum(reduced) / len(reduced), taken) if reduced else 0.0
        summed = [float(self._steps), float(self._samples), taken, self._data_wait, exposed]
        self._begin()
        return summed, taken - exposed

    def _begin(self) -> None:
        self._began = self._clock()
        self._steps = self._samples = 0
        self._data_wait = self._away = 0.0
        self._reductions: list[tuple[float | torch.Event, float | torch.Event]] = []

    @contextmanager
    def _timed(self, total: Tensor) -> Iterator[None]:
        ready: list[float | torch.Event] = []
        # Callbacks run in the order in which they came, when the graph is done; DDP's, which waits for the
        # reduction, comes with the last gradient: after ours.
        hook = total.register_hook(lambda _: after_backward(lambda: ready.append(self._mark())))
        try:
            yield
        finally:
            hook.remove()
        if ready:
            self._reductions.append((ready[0], self._mark()))

    def _mark(self) -> float | torch.Event:
        """A point in time: on an accelerator in its stream, read at the next report."""
        if self._context.device.type in ("cpu", "mps"):
            return self._clock()
        event = torch.Event(self._context.device, enable_timing=True)
        event.record()
        return event


def report(running: Running, throughput: Throughput, context: RankContext) -> dict[str, float]:
    """All metrics of the interval over all ranks, most of them named train/…; all ranks must call it.

    One small message carries them. Begins a new interval.
    """
    running.settle()
    summed, computing = throughput.interval()
    size = context.world_size
    mine = columns([computing, running.loss, *use_of(context.device)], context.rank, size)
    means, everything = running.report(context, [running.items, *summed, *mine])
    at = len(everything) - len(mine)
    own, losses, *uses = gathered(everything[at:], size)
    found = metrics(everything[:at], own)
    if found:
        found |= devices_of_ranks([Use(*each) for each in zip(*uses, strict=True)])
    named = {f"train/{name}": value for name, value in {**means, **found}.items()}
    return named | running.kept | losses_of_ranks(losses)


def metrics(summed: Sequence[float], own: Sequence[float]) -> dict[str, float]:
    """What the intervals' numbers say: items of the loss and `interval`'s, summed over ranks.

    `own`: seconds of computing of each rank.
    """
    items, steps, samples, time_taken, data_wait, exposed = summed
    world_size = len(own)
    if not steps or not time_taken:
        return {}
    seconds = time_taken / world_size
    found = {"samples_per_second": samples / seconds}
    if items != samples:
        found["tokens_per_second"] = items / seconds
    found |= {"step_time": time_taken / steps, "data_wait": data_wait / time_taken}
    if world_size > 1:
        slowest = max(own)
        found["communication"] = exposed / time_taken
        found["slowest_rank"] = list(own).index(slowest)
        found["slowest_rank_lag"] = (slowest - median(own)) / seconds
    return found


def _seconds(ready: float | torch.Event, done: float | torch.Event) -> float:
    if isinstance(ready, torch.Event) and isinstance(done, torch.Event):
        done.synchronize()  # long past: the sums were read before
        return ready.elapsed_time(done) / 1e3
    assert isinstance(ready, float)
    assert isinstance(done, float)
    return done - ready
