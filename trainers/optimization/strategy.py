"""What depends on how a model is distributed over the ranks, behind one interface."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor, nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import few
from castoff.trainers.configuration.shared import Fsdp
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.replicated import Replicated
from castoff.trainers.optimization.sharded_modules import check_parameters, chosen
from castoff.trainers.optimization.wrapping import Reducer

logger = logging.getLogger(__name__)


class Norm(Protocol):
    """The norm of a step's gradient, from this rank's gradients or parts of them; the same on all ranks."""

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """The norm, on the gradients' device."""
        ...

    def sums_are_finite(self, gradients: list[Tensor]) -> bool:
        """Whether the sum of each gradient is finite; if not, the norm decides."""
        ...


class Strategy(Protocol):
    """How a model, its gradients and the optimizer's state are distributed over the ranks."""

    @property
    def bare(self) -> nn.Module:
        """The module itself: with whole parameters or, while `sharded`, with this rank's parts of them."""
        ...

    @property
    def sharded(self) -> bool:
        """Whether this rank has only its parts of the parameters: until the end of the training."""
        ...

    @property
    def parts(self) -> int:
        """The number of ranks that share the parameters; 1 if each has all. Ranks n and n + parts have the
        same part.
        """
        ...

    @property
    def norm(self) -> Norm:
        """Computes the norm of the gradients."""
        ...

    @property
    def needs_norm(self) -> bool:
        """Whether every step needs the norm, because a rank sees only parts of the gradient."""
        ...

    # --- A step -----------------------------------------------------------------------------------

    def wrapped(self) -> AbstractContextManager[tuple[nn.Module, Reducer | None]]:
        """A context with the module to compute losses with, and the one that reduces gradients, if any."""
        ...

    def begin(self) -> None:
        """Prepare a step."""
        ...

    def sync(self, *, last: bool) -> AbstractContextManager[Any]:
        """A context for a micro-batch's forward pass; after the `last` one gradients are complete."""
        ...

    def computing(self, precision: str) -> AbstractContextManager[Any]:
        """A context that computes in `precision`."""
        ...

    def gradients(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Complete a step's gradients, and return those that exist, or this rank's parts of them."""
        ...

    def unused(self, parameters: Sequence[Tensor], *, accumulated: bool) -> list[int]:
        """Indices of parameters that should have been reached by the last backward pass, and were not."""
        ...

    # --- Other modules ----------------------------------------------------------------------------

    def copied(self) -> nn.Module:
        """A copy of the module with weights of its own, distributed in the same way."""
        ...

    def gathered(self, module: nn.Module) -> AbstractContextManager[nn.Module]:
        """A context with a whole module that has the weights of `module`; all ranks must enter it.

        `module` is `bare`, or what `copied` returned.
        """
        ...

    def end(self, others: Sequence[nn.Module], *, gather: bool) -> list[nn.Module]:
        """Make `bare` whole, and return whole modules in place of other ones, which `copied` returned.

        With `gather` they have the weights, and all ranks must call it; without, weights must be loaded.
        """
        ...

    def alike(self, numbers: Tensor) -> bool:
        """Whether all ranks that have the same parts have the same whole numbers; all ranks must call it."""
        ...


def strategy_of(model: nn.Module, config: Config, context: RankContext) -> Strategy:
    """Distribute a model as `parallel.strategy` says; a process without a group has it whole.

    Raises:
        ConfigError: the model cannot be sharded as configured, also if there is only one rank.
    """
    if config.parallel.strategy == "ddp":
        return Replicated(model, config, context)
    fields = config.parallel.fsdp or Fsdp()
    modules = chosen(model, fields.modules)
    check_parameters(model, modules)
    if not context.distributed:
        logger.info("fsdp: one rank, so nothing is sharded")
        return Replicated(model, config, context)
    from castoff.trainers.optimization.sharded import Sharded  # imports DTensor, which takes time

    made = Sharded(model, modules, config, context)
    if context.is_main:
        own = few([name for name, _ in modules])
        what = f"{own} are sharded on their own," if own else "the model is sharded as one,"
        logger.info("fsdp: %s over %d ranks", what, made.parts)
    return made
