"""Modules that are frozen in the first steps of a training: `training.freeze`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from torch import nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.module_names import named

logger = logging.getLogger(__name__)

_FIELD = "training.freeze"


class Freezing:
    """Whether parameters require a gradient: a function of the step alone, so that a resume needs no state.

    A frozen parameter gets no gradient, so the optimizer changes neither it nor its state, and weight decay
    does not apply. `groups`: parameters of which some must always be trained.

    Raises:
        ConfigError: a pattern describes no module, or all parameters of a group are frozen.
    """

    def __init__(
        self,
        model: nn.Module,
        config: Config,
        context: RankContext,
        groups: Iterable[Collection[nn.Parameter]],
    ):
        self._context = context
        self._until: dict[nn.Parameter, int] = {}
        for number, each in enumerate(config.training.freeze):
            field = f"{_FIELD}.{number}.modules"
            for _, module in named(model, each.modules, field, need_forward=False):
                for parameter in module.parameters():
                    if parameter.requires_grad:
                        self._until[parameter] = max(each.until, self._until.get(parameter, 0))
        for group in groups:
            if group and all(parameter in self._until for parameter in group):
                raise ConfigError([f"{_FIELD}: freezes all that an optimizer trains; leave out some modules"])
        self._frozen: set[nn.Parameter] = set()

    def begin(self, step: int) -> bool:
        """Freeze what is frozen in the step after `step` completed ones; returns whether that has changed."""
        if not self._until:
            return False
        frozen = {parameter for parameter, until in self._until.items() if step < until}
        if frozen == self._frozen:
            return False
        if self._context.is_main:
            logger.info(
                "From step %d on, %s of the parameters that training.freeze names are frozen",
                step + 1,
                f"{len(frozen)} of {len(self._until)}" if frozen else "none",
            )
        self._set(frozen)
        return True

    def end(self) -> None:
        """Freeze nothing."""
        self._set(set())

    def _set(self, frozen: set[nn.Parameter]) -> None:
        self._frozen = frozen
        for parameter in self._until:
            parameter.requires_grad_(parameter not in frozen)


def warn_of_the_end(config: Config, total: int | None) -> None:
    """Warn of modules that stay frozen to the end of a training of `total` steps; None: unknown."""
    for number, each in enumerate(config.training.freeze):
        if total is not None and each.until >= total:
            logger.warning(
                "%s.%d.until: is %d, but the training has only %d steps: %s stay frozen to its end",
                _FIELD,
                number,
                each.until,
                total,
                few(each.modules),
            )
