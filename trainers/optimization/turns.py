"""Steps in which several optimizers take turns, such as a GAN's: each has its own loss and parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.optimizer import make_optimizer
from castoff.trainers.optimization.optimizers import Optimizers
from castoff.trainers.optimization.replicated import Replicated
from castoff.trainers.optimization.strategy import Strategy
from castoff.trainers.task import Task
from castoff.trainers.task.training_state import TrainingState


def make_engine(strategy: Strategy, task: Task, config: Config, context: RankContext) -> Engine:
    """The engine of a training, with its optimizers.

    Raises:
        ConfigError: see `make_optimizer`; or optimizers take turns, which sharded models do not allow.
    """
    optimizer = make_optimizer(config, task, strategy.bare)
    if not task.turns:
        if isinstance(optimizer, Optimizers) and len(optimizer.each) > 1:
            task.state.without_turns = tuple(optimizer.each)
        return Engine(strategy, optimizer, config, context)
    if config.parallel.strategy == "fsdp":  # also on one rank, on which nothing is sharded
        raise ConfigError(
            [
                "parallel.strategy: is fsdp, but optimizers can take turns (task.turns) only with ddp; write "
                "strategy: ddp"
            ]
        )
    assert isinstance(optimizer, Optimizers)
    return TurnsEngine(strategy, optimizer, config, context, task.turns)


class TurnsEngine(Engine):
    """An engine with an inner one for each optimizer.

    In an optimizer's turn only its parameters require a gradient, so that the loss gives none to others and
    DDP waits for none. Each inner engine has its own DDP, gradient norm, clipping, loss scale and count of
    skipped steps; the averaged weights are updated once, after the last turn.
    """

    optimizer: Optimizers

    def __init__(
        self,
        strategy: Strategy,
        optimizer: Optimizers,
        config: Config,
        context: RankContext,
        turns: Sequence[str],
    ):
        super().__init__(strategy, optimizer, config, context)
        inner = msgspec.structs.replace(
            config, training=msgspec.structs.replace(config.training, ema_decay=None, freeze=[])
        )
        self._order = list(turns)
        self._trained = {name: _trained(each) for name, each in optimizer.each.items()}
        self._inner: dict[str, Engine] = {}
        for name in self._trained:
            with self._alone(name):
                alone = Replicated(strategy.bare, config, context)
                self._inner[name] = Engine(alone, optimizer.each[name], inner, context)

    @property
    def empty(self) -> bool:
        """Whether a step's number of items is 0 on all ranks, in every turn; waits for the device."""
        return all(engine.empty for engine in self._inner.values())

    @property
    def has_loss(self) -> bool:
        """Whether a loss of this rank was not 0 in this step; waits for the device."""
        return any(engine.has_loss for engine in self._inner.values())

    def turns(self, state: TrainingState) -> Iterator[Engine]:
        """The engine of each turn of a step; `state.turn` names it meanwhile."""
        if self._freezing.begin(state.step):
            self.rewrap()
        skipped = self._skips_of_all()
        try:
            for name in self._order:
                state.turn, engine = name, self._inner[name]
                engine.timed = self.timed
                with self._alone(name):
                    yield engine
        finally:
            state.turn = None
        self.skipped = sum(self._skips_of_all())
        self.norm = torch.linalg.vector_norm(torch.stack([each.norm for each in self._inner.values()]))
        if self.average is not None and any(map(int.__eq__, skipped, self._skips_of_all())):
            self.average.update(self.bare)

    def settle(self) -> None:
        """Check the last step's gradient norms, if they have not been read yet.

        Raises:
            NonFiniteError: one is not finite.
        """
        for engine in self._inner.values():
            engine.settle()

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        """A context with the compiled and distributed model; DDP must be freed before the process group."""
        with ExitStack() as stack:
            for name, engine in self._inner.items():
                with self._alone(name):
                    stack.enter_context(engine.wrapped())
            if self.average is not None:
                self.average.begin(self.bare)  # DDP has just broadcast rank 0's weights
            yield
        self._freezing.end()

    def rewrap(self) -> None:
        """Wrap the model again for each turn."""
        self._trained = {name: _trained(each) for name, each in self.optimizer.each.items()}
        for name, engine in self._inner.items():
            with self._alone(name):
                engine.rewrap()

    def _groups_to_train(self) -> Iterable[Collection[nn.Parameter]]:
        return [_trained(each) for each in self.optimizer.each.values()]

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the weights."""
        return {
            "turns": {name: engine.state_dict() for name, engine in self._inner.items()},
            "average": self.average.state_dict() if self.average is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint; the weights are loaded separately.

        Raises:
            ConfigError: other optimizers took turns.
        """
        before = list(state.get("turns", ()))
        if before != list(self._inner):
            raise ConfigError(
                [
                    f"task.turns: {few(list(self._inner))} take turns, but the checkpoint has "
                    f"{few(before) or 'none'}; keep them, or start over with training.fresh: true"
                ]
            )
        for name, engine in self._inner.items():
            engine.load_state_dict(state["turns"][name])
        self.optimizer.gather_groups()
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        self.skipped = sum(self._skips_of_all())

    def _skips_of_all(self) -> list[int]:
        return [engine.skipped for engine in self._inner.values()]

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """A context in which only this optimizer's parameters require a gradient."""
        others = [one for other, each in self._trained.items() if other != name for one in each]
        for parameter in others:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in others:
                parameter.requires_grad_(True)


def _trained(optimizer: Optimizer) -> list[nn.Parameter]:
    return [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
