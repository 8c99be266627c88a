"""Measures training's speed and what limits it, from cheap timings on every rank.

A step reads only the host's clocks and does not wait for the device. At log steps the timings are summed over
ranks in the same message as the sums of the loss.
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
    "flops",
    "mfu",
)
"""Metrics that differ between two runs even if their training is identical."""

_SAMPLES = 8
"""Number of steps per interval in which communication is timed."""


class Throughput:
    """One rank's timings since the last report.

    `log_every`: optimizer steps between two reports.
    """

    def __init__(self, context: RankContext, log_every: int, clock: Callable[[], float] = time.perf_counter):
        self._context = context
        self._every = max(1, log_every // _SAMPLES)
        self._clock = clock
        self._step_began = clock()
        self._begin()

    def waits(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches, and count the time to get each as data wait."""
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
        """A context for the backward pass from `total` that reduces gradients: in some steps it times
        communication.

        It times the communication that computing does not hide: from the end of this rank's backward pass
        until all gradients are reduced. This includes waiting for slower ranks.
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
        """This rank's numbers to sum over ranks, and its seconds of computing; begins a new interval."""
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
        # Callbacks run after the backward pass in the order of registration. DDP registers its own, which
        # waits for the reduction, with the last gradient: after ours.
        hook = total.register_hook(lambda _: after_backward(lambda: ready.append(self._mark())))
        try:
            yield
        finally:
            hook.remove()
        if ready:
            self._reductions.append((ready[0], self._mark()))

    def _mark(self) -> float | torch.Event:
        """The current time; on an accelerator an event in its stream, which is read at the next report."""
        if self._context.device.type in ("cpu", "mps"):
            return self._clock()
        event = torch.Event(self._context.device, enable_timing=True)
        event.record()
        return event


def report(
    running: Running, throughput: Throughput, context: RankContext, *, sharded: bool = False
) -> dict[str, float]:
    """The interval's metrics over all ranks, most of them named train/…; all ranks must call it.

    It sends one small message, and begins a new interval.
    """
    running.settle()
    summed, computing = throughput.interval()
    size = context.world_size
    mine = columns([computing, running.loss, *use_of(context.device)], context.rank, size)
    means, everything = running.report(context, [running.items, *summed, *mine])
    at = len(everything) - len(mine)
    computing_of_ranks, losses, *uses = gathered(everything[at:], size)
    measured = metrics(everything[:at], computing_of_ranks, sharded=sharded)
    if measured:
        measured |= devices_of_ranks([Use(*each) for each in zip(*uses, strict=True)])
    named = {f"train/{name}": value for name, value in {**means, **measured}.items()}
    return named | running.kept | losses_of_ranks(losses)


def metrics(summed: Sequence[float], own: Sequence[float], *, sharded: bool = False) -> dict[str, float]:
    """Metrics of an interval from `summed`: the loss's items and `interval()`'s numbers, summed over ranks.

    `own`: seconds of computing of each rank. These are not known of a `sharded` model, whose ranks wait for
    each other throughout a step.
    """
    items, steps, samples, time_taken, data_wait, exposed = summed
    world_size = len(own)
    if not steps or not time_taken:
        return {}
    seconds = time_taken / world_size
    rates = {"samples_per_second": samples / seconds}
    if items != samples:
        rates["tokens_per_second"] = items / seconds
    rates |= {"step_time": time_taken / steps, "data_wait": data_wait / time_taken}
    if world_size > 1 and not sharded:
        slowest = max(own)
        rates["communication"] = exposed / time_taken
        rates["slowest_rank"] = list(own).index(slowest)
        rates["slowest_rank_lag"] = (slowest - median(own)) / seconds
    return rates


def _seconds(ready: float | torch.Event, done: float | torch.Event) -> float:
    if isinstance(ready, torch.Event) and isinstance(done, torch.Event):
        done.synchronize()  # returns at once: later sums have been read
        return ready.elapsed_time(done) / 1e3
    assert isinstance(ready, float)
    assert isinstance(done, float)
    return done - ready
