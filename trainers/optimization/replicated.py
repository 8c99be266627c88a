"""The strategy `ddp`: every rank has the whole model, and gradients are averaged over the ranks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.devices import computing
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.gradients import GradientNorm
from castoff.trainers.optimization.wrapping import Reducer, compiled, distributed, unreduced


class Replicated:
    """A whole model on each rank, wrapped in DistributedDataParallel while it trains; see `Strategy`."""

    sharded = False
    needs_norm = False
    parts = 1

    def __init__(self, model: nn.Module, config: Config, context: RankContext):
        self.bare = model
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.norm = GradientNorm(self._parameters, in_buckets=False)
        self._reducer: DistributedDataParallel | None = None
        self._config = config
        self._context = context
        parallel = config.parallel
        self._all_needed = context.distributed and not (
            parallel.find_unused_parameters or parallel.static_graph
        )

    @contextmanager
    def wrapped(self) -> Iterator[tuple[nn.Module, Reducer | None]]:
        """Compile the model, and wrap it in DistributedDataParallel while the context lasts."""
        model = compiled(self.bare) if self._config.training.compile else self.bare
        if self._context.distributed:
            self._reducer = distributed(model, self._config, self._context)
        # If gradients may be missing, buckets have stale memory, and would be searched in each step.
        in_buckets = self._config.parallel.gradient_as_bucket_view and self._all_needed
        self.norm = GradientNorm(self._parameters, in_buckets=in_buckets)
        try:
            yield model, self._reducer
        finally:
            self.norm = GradientNorm(self._parameters, in_buckets=False)
            self._reducer = None

    def begin(self) -> None:
        """Nothing: DistributedDataParallel prepares itself."""

    def sync(self, *, last: bool) -> AbstractContextManager[Any]:
        """Gradients are reduced only after the last micro-batch."""
        return nullcontext() if last or self._reducer is None else self._reducer.no_sync()

    def computing(self, precision: str) -> AbstractContextManager[Any]:
        """Autocast."""
        return computing(self._context.device, precision)

    def gradients(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """The gradients; DistributedDataParallel has completed them."""
        return [gradient for parameter in parameters if (gradient := parameter.grad) is not None]

    def unused(self, parameters: Sequence[Tensor], *, accumulated: bool) -> list[int]:
        """Parameters without a gradient that was reduced, if DistributedDataParallel needs all."""
        if not self._all_needed:
            return []
        unused = [number for number, each in enumerate(parameters) if each.grad is None]
        if not unused and accumulated and self._reducer is not None:
            return unreduced(self._reducer)
        return unused

    def copied(self) -> nn.Module:
        """A deep copy."""
        return copy.deepcopy(self.bare)

    def gathered(self, module: nn.Module) -> AbstractContextManager[nn.Module]:
        """The module itself."""
        return nullcontext(module)

    def end(self, others: Sequence[nn.Module], *, gather: bool) -> list[nn.Module]:
        """Nothing: all modules are whole."""
        return list(others)

    def alike(self, numbers: Tensor) -> bool:
        """Whether all ranks have the same numbers."""
        return self._context.alike(numbers)
