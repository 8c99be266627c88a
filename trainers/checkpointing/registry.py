"""Registers whatever has a state that a checkpoint keeps and a resumed training restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from castoff.trainers.checkpointing.of_task import KeptTask
from castoff.trainers.distributed.process_group import RankContext


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain containers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        ...


class OfOneRank(Stateful, Protocol):
    """An object of which each rank has its own state."""

    def load_state_dicts(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from the states of another number of ranks."""
        ...


class Registry:
    """Everything that has a state: `shared`, of which rank 0's is kept, and `own` of each rank.

    Of the task the states decide.
    """

    def __init__(self, task: KeptTask, shared: Mapping[str, Stateful], own: Mapping[str, OfOneRank]):
        self._task = task
        self._shared = shared
        self._own = own

    def state_dict(self, context: RankContext) -> dict[str, Any]:
        """What a checkpoint keeps, on rank 0. All ranks must call it."""
        ranks = context.gather_on_main({name: part.state_dict() for name, part in self._own.items()})
        task = self._task.states(context)
        if not context.is_main:
            return {}
        shared = {name: part.state_dict() for name, part in self._shared.items()}
        return {**shared, "task": task, "ranks": ranks}

    def load_state_dict(self, state: dict[str, Any], context: RankContext) -> None:
        """Resume from a checkpoint.

        Raises:
            KeyError: it lacks something that this castoff keeps.
        """
        for name, part in self._shared.items():
            part.load_state_dict(state[name])
        self._task.load_states(state["task"], context)
        ranks = state["ranks"]
        for name, own in self._own.items():
            if len(ranks) == context.world_size:
                own.load_state_dict(ranks[context.rank][name])
            else:
                own.load_state_dicts([rank[name] for rank in ranks], context)
