"""Checks the weights: they are equal to the bit on all ranks, and every parameter gets a gradient.

Both hold in a correct training. They are checked after the first step and, except for gradients, at each
checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.bits import bit_sums, digest
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.local import local, local_gradients
from castoff.trainers.optimization.unreached import depends_on_none, only_zeros, unused_alone
from castoff.trainers.task import Task
from castoff.trainers.task.training_state import TrainingState

logger = logging.getLogger(__name__)

_SHOWN = 4
"""The most ranks listed in a message."""


class Weights:
    """A model's parameters at the start of a training, and those of its average, if there is one.

    Nothing is checked if `training.check_first_step` is false.
    """

    def __init__(
        self, task: Task, engine: Engine, state: TrainingState, config: Config, context: RankContext
    ):
        self._task = task
        self._engine = engine
        self._model = engine.bare
        self._average = None if engine.average is None else engine.average.module
        self._state = state
        self._context = context
        self._wanted = config.training.check_first_step
        self._unused_is_meant = config.parallel.find_unused_parameters or config.parallel.static_graph
        self._all = set(self._model.parameters())
        self._trained = {each for each in self._all if each.requires_grad}

    def check_reached(self) -> None:
        """Check that the last step had a gradient; it is the same on all ranks.

        Parameters without a gradient cause a warning; with several ranks they have already caused an error.

        Raises:
            ConfigError: no parameter has a gradient; or in the training's very first step all gradients are
                zero, but the loss is not (with a loss of 0 it is a warning). Later gradients may be zero, as
                with a margin loss that every sample satisfies.
        """
        if not self._wanted:
            return
        wanted = [(name, each.grad) for name, each in self._model.named_parameters() if each.requires_grad]
        gradients = local_gradients(self._model.parameters())
        step = self._state.step
        if not gradients:
            raise ConfigError([depends_on_none(step)])
        if step == 1 and not self._engine.empty and self._are_zero(gradients):
            if self._context.anywhere(self._engine.has_loss):
                raise ConfigError([only_zeros(step)])
            if self._context.is_main:
                logger.warning("%s", only_zeros(step, "the loss and "))
        idle = [name for name, each in wanted if each is None]
        if idle and not self._unused_is_meant and self._context.is_main:
            logger.warning("%s", unused_alone(step, idle))

    def _are_zero(self, gradients: Sequence[Tensor]) -> bool:
        return self._context.everywhere(not any(bool(gradient.any()) for gradient in gradients))

    def check_trained(self) -> None:
        """Check that all parameters that require a gradient did so when the training began.

        Raises:
            ConfigError: a parameter did not, or is new, so that it is neither optimized nor reduced over
                ranks.
        """
        left = [
            (name, "was frozen" if each in self._all else "did not exist")
            for name, each in self._model.named_parameters()
            if each.requires_grad and each not in self._trained
        ]
        if left and self._wanted:
            names = few([name for name, _ in left])
            raise ConfigError(
                [
                    f"model: at step {self._state.step} {names} requires a gradient, but {left[0][1]} "
                    "when the training began, so no optimizer changes it; create it and call "
                    f"requires_grad_(True) on it in {type(self._task).__qualname__}.build_model. "
                    "Parameters that should learn later may have their own group in parameters(), with "
                    "lr: 0.0 until then"
                ]
            )

    def check_alike(self) -> None:
        """Check that all ranks have the same weights, bit for bit; all ranks must call it.

        Raises:
            ConfigError: they differ; raised on all ranks, with each rank's values.
        """
        if not self._wanted or not self._context.distributed or self._context.world_size == 1:
            return
        named = list(self._model.named_parameters())
        if self._average is not None:
            named += [(f"{name} (averaged)", each) for name, each in self._average.named_parameters()]
        sums = bit_sums(local(each) for _, each in named)
        if not self._engine.strategy.alike(digest(sums)):
            raise ConfigError([self._apart(named, sums)])

    def _apart(self, named: Sequence[tuple[str, Tensor]], sums: Tensor) -> str:
        """The message about differing weights, the same on all ranks."""
        every = self._context.gather(sums)
        same = torch.arange(len(every)) % self._engine.strategy.parts  # the first rank with the same part
        differing = (every != every[same]).any(dim=0).nonzero().flatten().tolist()
        name, first = named[differing[0]]
        total = local(first).detach().to(torch.complex128).sum().real
        totals = self._context.gather(total[None]).flatten().tolist()
        shown = ", ".join(f"{total:.10g} on rank {rank}" for rank, total in enumerate(totals[:_SHOWN]))
        more = f" and so on, on {len(totals)} ranks" if len(totals) > _SHOWN else ""
        some = f"{few([named[index][0] for index in differing])} of {len(named)} parameters"
        task = type(self._task).__qualname__
        return (
            f"model: after step {self._state.step} its weights are not the same on all ranks, which "
            f"therefore train different models: {name} sums to {shown}{more} (bits differ in {some}). "
            f"{self._why(task)}"
        )

    def _why(self, task: str) -> str:
        gradients = local_gradients(self._model.parameters())
        if gradients and self._engine.strategy.alike(digest(bit_sums(gradients))):
            return (
                "The gradients of that step are the same, so something else has changed the weights: "
                f"check that {task}.loss, evaluate, after_evaluation and export do not change weights, "
                "and that the optimizer draws no random numbers, which differ between ranks"
            )
        return (
            "Its gradients also differ, although they are summed over the ranks while the trainer "
            "differentiates Loss.total: do not use backward(), .grad or in-place changes of weights in "
            f"{task}.loss, and use an optimizer that draws no random numbers, which differ between ranks"
        )
