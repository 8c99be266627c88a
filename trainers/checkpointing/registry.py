"""Registers the objects whose states a checkpoint keeps and a resumed training restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from castoff.trainers.checkpointing.of_task import KeptTask
from castoff.trainers.distributed.process_group import RankContext


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as tensors and plain containers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        ...


class OfOneRank(Stateful, Protocol):
    """An object with a separate state on each rank."""

    def load_state_dicts(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from a checkpoint's states that were saved by a different number of ranks."""
        ...


class Registry:
    """The objects with a state. A checkpoint holds rank 0's state of `shared` ones, each rank's of `own`
    ones.

    The task's state is kept once if it is equal on all ranks, else for each rank.
    """

    def __init__(self, task: KeptTask, shared: Mapping[str, Stateful], own: Mapping[str, OfOneRank]):
        self._task = task
        self._shared = shared
        self._own = own

    def state_dict(self, context: RankContext) -> dict[str, Any]:
        """All states, on rank 0; empty on others. All ranks must call it."""
        ranks = context.gather_on_main({name: part.state_dict() for name, part in self._own.items()})
        task = self._task.states(context)
        if not context.is_main:
            return {}
        shared = {name: part.state_dict() for name, part in self._shared.items()}
        return {**shared, "task": task, "ranks": ranks}

    def load_state_dict(self, state: dict[str, Any], context: RankContext) -> None:
        """Resume from a checkpoint.

        Raises:
            KeyError: the checkpoint lacks an entry.
        """
        for name, part in self._shared.items():
            part.load_state_dict(state[name])
        self._task.load_states(state["task"], context)
        ranks = state["ranks"]
        for name, part_of_rank in self._own.items():
            if len(ranks) == context.world_size:
                part_of_rank.load_state_dict(ranks[context.rank][name])
            else:
                part_of_rank.load_state_dicts([rank[name] for rank in ranks], context)
