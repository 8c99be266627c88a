"""Counts the floating-point operations of a training, on request: `monitoring.log_flops`.

Before the first step of each start, the loss of its first micro-batch is computed and differentiated once
more, and everything is restored afterwards. Inside of a step, counting would keep torch.compile from running,
and so change the step's last bits.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import flop_counter

from castoff.trainers.configuration.config import Config
from castoff.trainers.data.batches import Group
from castoff.trainers.distributed.devices import device_name
from castoff.trainers.distributed.private_torch import DispatchMode, cpu_attention, in_backward
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.reporting.device_peaks import peak_of
from castoff.trainers.task import Task, move, whole_loss
from castoff.trainers.task.untouched import untouched

logger = logging.getLogger(__name__)

_Count = Callable[..., int]


class Flops:
    """The operations of a sample, and the metrics that follow from them, if `monitoring` asks for them."""

    def __init__(self, config: Config, context: RankContext):
        self.wanted = config.monitoring.log_flops
        """Whether they still have to be counted."""
        self._context = context
        self._of_sample = 0.0
        tf32 = torch.get_float32_matmul_precision() != "highest"
        name = device_name(context.device)
        self._peak = peak_of(name, config.training.precision, tf32=tf32, environ=os.environ)
        in_this = f"the peak of {name} in {config.training.precision}"
        self._missing = "" if self._peak else f"; no MFU, because {in_this} is not known"

    def count(self, group: Group, task: Task, engine: Engine) -> None:
        """Count the operations of a group's first micro-batch, once; all ranks must call it."""
        self.wanted = False
        counted = 0
        micro = group.micros[0]
        try:
            with engine.strategy.gathered(engine.bare) as model, untouched(model, task):
                counted = _operations(task, model, engine, move(micro.data, self._context.device))
        except Exception as error:  # noqa: BLE001  # it must not end a training that can do without
            words = " ".join(str(error).split()) or type(error).__name__
            logger.warning("monitoring.log_flops: operations cannot be counted: %s", words)
        operations, samples = self._context.sum(torch.tensor([counted, micro.samples], dtype=torch.float64))
        if not operations or not samples:
            return
        self._of_sample = float(operations / samples)
        if self._context.is_main:
            logger.info(
                "%sFLOPs per sample, forward and backward, in matrix products, convolutions and attention%s",
                in_words(self._of_sample),
                self._missing,
            )

    def metrics(self, values: Mapping[str, float]) -> dict[str, float]:
        """`train/flops` and `train/mfu` for a line with `train/samples_per_second`."""
        speed = values.get("train/samples_per_second")
        if not self._of_sample or speed is None:
            return {}
        flops = self._of_sample * speed
        metrics = {"train/flops": flops}
        if self._peak is not None:
            metrics["train/mfu"] = flops / (self._peak * self._context.world_size)
        return metrics


def _operations(task: Task, model: nn.Module, engine: Engine, batch: Any) -> int:
    """The operations of a batch's loss and its gradients."""
    wanted = [each for each in model.parameters() if each.requires_grad]
    counter = Counter()
    with counter:
        with engine.autocast():
            loss = whole_loss(task, model, batch).total
        # Not backward(): DistributedDataParallel would take the gradients for those of a step.
        torch.autograd.grad(loss, wanted, allow_unused=True)
    return counter.operations


class Counter(DispatchMode):
    """A context that counts the floating-point operations of a model, forward and backward.

    What a backward pass computes again, to save memory, is not counted: it is not the model's.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: int = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call an operation, and count it."""
        named = kwargs or {}
        result = function(*args, **named)
        count = _COUNTS.get(getattr(function, "overloadpacket", None))
        again = in_backward() and torch.is_grad_enabled()
        if count is not None and not again:
            self.operations += count(*args, **named, out_val=result)
        return result


def _attention(query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    return int(flop_counter.sdpa_flop_count(query.shape, key.shape, value.shape))


def _attention_backward(gradient: Any, query: Any, key: Any, value: Any, *_: object, **__: object) -> int:
    shapes = (each.shape for each in (gradient, query, key, value))
    return int(flop_counter.sdpa_backward_flop_count(*shapes))


def _counts() -> dict[Any, _Count]:
    """torch's counts by operation, and those of attention on a CPU, which it lacks."""
    forward, backward = cpu_attention()
    return {forward: _attention, backward: _attention_backward, **flop_counter.flop_registry}


_COUNTS = _counts()


def in_words(operations: float) -> str:
    """A number with a unit's prefix: `1.23 T`."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if operations >= factor:
            return f"{operations / factor:.3g} {prefix}"
    return f"{operations:.3g} "
