"""Turns the losses of a step's micro-batches into an optimizer step, the same on all ranks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, UserError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization import unreached
from castoff.trainers.optimization.averaging import AveragedWeights
from castoff.trainers.optimization.freezing import Freezing
from castoff.trainers.optimization.gradients import UnreadNorm, clipping, multiply
from castoff.trainers.optimization.non_finite import found_not_finite
from castoff.trainers.optimization.optimizer import load_optimizer
from castoff.trainers.optimization.strategy import Strategy
from castoff.trainers.optimization.wrapping import Reducer
from castoff.trainers.task import Loss
from castoff.trainers.task.training_state import TrainingState

logger = logging.getLogger(__name__)

MOST_SKIPPED = 100
"""The number of consecutive steps without a finite gradient after which training ends with an error."""


class NonFiniteError(UserError):
    """A gradient is not finite; the text names the step, ranks whose loss is not finite, and parameters."""


class Engine:
    """A model on its device with its optimizer: forward under autocast, backward, step.

    The gradient is that of the mean over the items of all ranks' micro-batches. Each loss is divided by the
    expected number of items before it is differentiated, so that half precision does not overflow. The
    expected number is the last step's; the actual one is summed over ranks while gradients are computed, and
    the gradients are corrected before the step.
    """

    def __init__(
        self, strategy: Strategy, optimizer: torch.optim.Optimizer, config: Config, context: RankContext
    ):
        self.strategy = strategy
        self.optimizer = optimizer
        self.average: AveragedWeights | None = None
        """The averaged weights; None without `training.ema_decay`."""
        self.norm = torch.zeros(())
        """Norm of the last step's gradient, before clipping; on the device. On a CPU without clipping it is
        only computed in steps that are logged (`training.log_every`)."""
        self.timed: Callable[[Tensor], AbstractContextManager[None]] = lambda _: nullcontext()
        """A context for the backward pass in which gradients are reduced."""
        self.skipped = 0
        """Number of skipped steps since the training began."""
        training = config.training
        self._context = context
        self._clip = training.clip_grad_norm
        every = strategy.needs_norm or self._clip is not None or context.device.type != "cpu"
        self._norm_every = 1 if every else training.log_every
        self._skips = training.non_finite == "skip"
        self._precision = training.precision
        self._scaler = torch.amp.GradScaler(context.device.type) if training.precision == "fp16" else None
        self._parameters = [parameter for parameter in self.bare.parameters() if parameter.requires_grad]
        self._step = 0
        self._accumulated = False
        self._buffers: dict[str, Tensor] = {}
        self._skipped_in_a_row = 0
        self._empty = 0
        self._expected: Tensor | None = None
        self._items: Tensor | None = None
        self._reduction: dist.Work | None = None
        self._losses: list[Tensor] = []
        self._unread: UnreadNorm | None = None
        self._weight = (0.0, torch.zeros(()))
        if training.ema_decay is not None:
            self.average = AveragedWeights(strategy.copied(), training.ema_decay)
        self.model = self.bare
        """The module to compute losses with: the bare one or, in the context `wrapped`, the compiled one."""
        self.reducer: Reducer | None = None
        """Computes losses so that gradients are reduced over ranks, in the context `wrapped`."""
        self._gathered: nn.Module | None = None
        self._freezing = Freezing(self.bare, config, context, self._groups_to_train())
        self._wrapping = ExitStack()

    @property
    def bare(self) -> nn.Module:
        """The module itself. While it is sharded, its parameters are this rank's parts."""
        return self.strategy.bare

    @property
    def judged(self) -> nn.Module:
        """The module that is validated and tested: the averaged one, or the bare one.

        Until the end of a training with sharded weights, it can be used only in the context `gathered`.
        """
        if self._gathered is not None:
            return self._gathered
        return self.bare if self.average is None else self.average.module

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A context in which `judged` has whole weights; all ranks must enter it."""
        if self._gathered is not None:
            yield
            return
        with self.strategy.gathered(self.judged) as self._gathered:
            try:
                yield
            finally:
                self._gathered = None

    @property
    def empty(self) -> bool:
        """Whether the step's number of items is 0 on all ranks; waits for the device."""
        return self._items is not None and not bool(self._items)

    @property
    def has_loss(self) -> bool:
        """Whether a loss of this rank was not 0 in this step; waits for the device."""
        return any(bool(loss) for loss in self._losses)

    # --- One step ---------------------------------------------------------------------------------

    def turns(self, state: TrainingState) -> Iterator[Engine]:
        """The engines that make a step one after the other: this one, unless optimizers take turns."""
        if self._freezing.begin(state.step):
            self.rewrap()
        yield self

    def begin(self, step: int) -> None:
        """Prepare a step: drop the last gradients; `step`: number of completed steps."""
        self._step = step
        self._forget_gradients()
        self.strategy.begin()
        self._items = None
        self._losses = []
        if self._skips or self._scaler is not None:
            self._buffers = {name: buffer.clone() for name, buffer in self.bare.named_buffers()}

    def _forget_gradients(self) -> None:
        """Do what `zero_grad(set_to_none=True)` does, ten times as fast, since it is not profiled."""
        if type(self.optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:  # an override may do more
            self.optimizer.zero_grad(set_to_none=True)
            return
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def sync(self, *, last: bool) -> AbstractContextManager[Any]:
        """A context for a micro-batch's forward pass: gradients are reduced only after the `last` one."""
        return self.strategy.sync(last=last)

    def loss(self, compute: Callable[[nn.Module], Loss]) -> Loss:
        """A micro-batch's loss, `compute(model)`.

        With several ranks the whole computation is one forward pass, so gradients are reduced
        whichever of the model's parts and methods are called, and however often; and `compute` gets the same
        module on one rank as on many.
        """
        if self.reducer is None:
            return compute(self.model)
        made: list[Loss] = []

        def total(model: nn.Module) -> Tensor:
            made.append(compute(model))
            return made[0].total

        reduced = self.reducer(total)
        return made[0] if reduced is made[0].total else replace(made[0], total=reduced)

    def autocast(self) -> AbstractContextManager[Any]:
        """A context that computes in training's precision."""
        return self.strategy.computing(self._precision)

    def backward(self, loss: Loss, samples: int, micros: int, *, last: bool) -> None:
        """Differentiate a micro-batch's loss as its share of the mean over all ranks' items.

        `samples`: samples of all ranks in this step; `micros`: this rank's micro-batches in it.
        """
        if loss.count is None:
            weight = self._constant(self._context.world_size / samples, loss.total)
        else:
            weight = self._counted(loss.count, micros, last).to(loss.total.dtype)
        self._losses.append(loss.total.detach())
        self._accumulated = micros > 1
        if self._scaler is not None:
            weight = self._scaler.scale(weight)
        if last and self.reducer is not None:
            with self.timed(loss.total):
                loss.total.backward(weight)
        else:
            loss.total.backward(weight)

    def _constant(self, value: float, like: Tensor) -> Tensor:
        """A tensor of this value; the last one is kept, since most steps have the same value."""
        if self._weight[0] != value or self._weight[1].dtype != like.dtype:
            self._weight = (value, torch.full_like(like, value))
        return self._weight[1]

    def _counted(self, items: int | Tensor, micros: int, last: bool) -> Tensor:
        """The weight of a loss whose items are counted, from their expected number; also starts to sum the
        actual number.
        """
        device = self._context.device
        # torch.tensor would wait for the device; zeros does not.
        count = torch.zeros((), dtype=_exact(device), device=device) + items
        self._items = count.clone() if self._items is None else self._items + count
        if self._expected is None:  # the first step has no earlier count
            self._expected = (self._context.sum(count) * micros).nan_to_num(1.0, posinf=1.0).clamp(min=1.0)
        if last and self._context.distributed:
            self._reduction = dist.all_reduce(self._items, async_op=True)
        return self._context.world_size / self._expected

    def apply(self) -> bool:
        """Make an optimizer step with the accumulated gradients; returns False if it was skipped.

        Raises:
            NonFiniteError: the gradient is not finite, and such steps are not skipped, or too many were.
        """
        if self._scaler is not None:
            self._scaler.unscale_(self.optimizer)
        gradients = self.strategy.gradients(self._parameters)
        self._check_all_used()
        factor = self._correction()
        has_norm = (self._step + 1) % self._norm_every == 0
        if has_norm:
            self.norm = self.strategy.norm(gradients)
            self.norm = self.norm if factor is None else self.norm * factor.to(self.norm.dtype)
        if self._clip is not None:
            clipped = clipping(self._clip, self.norm)
            factor = clipped if factor is None else factor * clipped
        if factor is not None:
            multiply(gradients, factor)
        if not self._finite(gradients, has_norm=has_norm):
            self._restore_buffers()
            return False
        if self._scaler is not None:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        else:
            self.optimizer.step()
        if self.average is not None:
            self.average.update(self.bare)
        return True

    def _correction(self) -> Tensor | None:
        """The factor that corrects the gradients from the expected to the actual number of items."""
        if self._items is None or self._expected is None:
            return None
        if self._reduction is not None:
            self._reduction.wait()
            self._reduction = None
        none = self._items == 0
        if self._context.is_main and self._context.device.type == "cpu" and bool(none):
            self._empty += 1
            if _is_news(self._empty):
                words = (
                    "No rank has an item to count; the step's gradient is set to zero (%d such steps so far)"
                )
                logger.warning(words, self._empty)
        factor = torch.where(none, 0.0, self._expected / torch.where(none, 1.0, self._items))
        fine = self._items.isfinite() & ~none  # do not divide the next step's loss by NaN
        self._expected = torch.where(fine, self._items, self._expected)
        return factor

    def _check_all_used(self) -> None:
        """Check that the last backward pass reached every parameter that ranks wait for.

        Raises:
            ConfigError: it did not, and ranks would step with different gradients.
        """
        unused = self.strategy.unused(self._parameters, accumulated=self._accumulated)
        if len(unused) == len(self._parameters):
            raise ConfigError([unreached.depends_on_none(self._step + 1)])
        if unused:
            wanted = [name for name, each in self.bare.named_parameters() if each.requires_grad]
            micro = "the last micro-batch of " if self._accumulated else ""
            names = [wanted[number] for number in unused]
            raise ConfigError([unreached.unused(self._step + 1, names, micro, self.strategy.sharded)])

    # --- Gradients that are not numbers ------------------------------------------------------------

    def _finite(self, gradients: list[Tensor], *, has_norm: bool) -> bool:
        """Whether the gradients are finite. On an accelerator, if steps are not skipped, this is read a step
        later.
        """
        if self._scaler is None and not self._skips and self._context.device.type != "cpu":
            self.settle()
            self._unread = UnreadNorm(self._step, self.norm, self._losses)
            return True
        if self._is_finite(gradients, has_norm=has_norm):
            self._skipped_in_a_row = 0
            return True
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._scaler is not None:
            self._scaler.update()
        if not (self._skips or self._scaler is not None) or self._skipped_in_a_row >= MOST_SKIPPED:
            raise self._non_finite(self._step, self._losses)
        if self._skips and self._context.is_main and _is_news(self.skipped):
            logger.warning("A step is skipped: its gradient is not finite (%d so far)", self.skipped)
        return False

    def _is_finite(self, gradients: list[Tensor], *, has_norm: bool) -> bool:
        """Whether the gradients are finite; if they are clipped, whether their norm is (it may overflow)."""
        if not has_norm and self.strategy.norm.sums_are_finite(gradients):
            return True
        if math.isfinite((self.norm if has_norm else self.strategy.norm(gradients)).item()):
            return True
        return has_norm and self._clip is None and self.strategy.norm.sums_are_finite(gradients)

    @torch.no_grad()
    def _restore_buffers(self) -> None:
        """Restore the buffers after a skipped step: BatchNorm would keep statistics that are not finite."""
        for name, buffer in self.bare.named_buffers():
            before = self._buffers.get(name)
            if before is not None and not torch.equal(buffer, before):
                buffer.copy_(before)

    def settle(self) -> None:
        """Check the last step's gradient norm, if it has not been read yet.

        Raises:
            NonFiniteError: it is not finite.
        """
        if self._unread is not None:
            unread, self._unread = self._unread, None
            if not unread.finite():
                raise self._non_finite(unread.step, unread.losses)

    def _non_finite(self, step: int, losses: list[Tensor]) -> NonFiniteError:
        """The error for a step whose gradient is not finite; all ranks must call it."""
        repeated = f" ({self._skipped_in_a_row} steps in a row)" if self._skipped_in_a_row > 1 else ""
        advice = "" if self._skips else ", or skip such steps with training.non_finite: skip"
        found = found_not_finite(losses, self.bare, self._context)
        return NonFiniteError(
            f"step {step + 1}: {found.where} not finite{repeated}; gradients that are not finite: "
            f"{found.gradients}. Lower the learning rate, or set training.clip_grad_norm{advice}"
        )

    # --- How it is wrapped ------------------------------------------------------------------------

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        """A context for a training; DDP must be freed before the process group. All ranks must leave it."""
        with self._wrapping:
            self._wrap()
            if self.average is not None:
                self.average.begin(self.bare)  # DDP has just broadcast rank 0's weights
            yield
        self._freezing.end()
        self.end(gather=True)

    def _wrap(self) -> None:
        self._parameters = [parameter for parameter in self.bare.parameters() if parameter.requires_grad]
        self.model, self.reducer = self._wrapping.enter_context(self.strategy.wrapped())
        self._wrapping.callback(self._unwrap)

    def _unwrap(self) -> None:
        # Gradients are views that would keep DDP's buckets alive.
        self._forget_gradients()
        self.model, self.reducer = self.bare, None

    def rewrap(self) -> None:
        """Wrap the model again after other parameters require a gradient, for which alone DDP waits."""
        self._wrapping.close()
        self._wrap()

    def _groups_to_train(self) -> Iterable[Collection[nn.Parameter]]:
        """Parameters of which some must be trained in every step."""
        return [self._parameters]

    def end(self, *, gather: bool) -> None:
        """Make sharded weights whole, after which no training is possible.

        With `gather` all ranks must call it; without, weights must be loaded.
        """
        averaged = [] if self.average is None else [self.average.module]
        whole = self.strategy.end(averaged, gather=gather)
        if self.average is not None:
            (self.average.module,) = whole
        self.model = self.bare

    # --- Checkpoints ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the weights. Sharded tensors are this rank's parts."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self._scaler.state_dict() if self._scaler is not None else None,
            "average": self.average.state_dict() if self.average is not None else None,
            "expected": None if self._expected is None else float(self._expected),
            "skipped": self.skipped,
            "skipped_in_a_row": self._skipped_in_a_row,
        }

    def weights(self) -> dict[str, Any]:
        """The weights for a checkpoint by part. Sharded ones are this rank's parts."""
        parts = {"model": self.bare} | ({} if self.average is None else {"ema": self.average.module})
        return {part: module.state_dict() for part, module in parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint, with the optimizer's state sharded as its parameters are; the weights are
        loaded separately.
        """
        for line in load_optimizer(self.optimizer, state["optimizer"]):
            logger.info("%s", line)
        if self._scaler is not None and state["scaler"] is not None:
            self._scaler.load_state_dict(state["scaler"])
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        if state["expected"] is not None:
            device = self._context.device
            self._expected = torch.tensor(state["expected"], dtype=_exact(device), device=device)
        self.skipped, self._skipped_in_a_row = state["skipped"], state["skipped_in_a_row"]


def _is_news(count: int) -> bool:
    """Whether to log the count-th occurrence: only powers of two, so that the log is not flooded."""
    return count & (count - 1) == 0


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64
