"""A task's state as a checkpoint keeps it: once where all ranks have the same, else that of each rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.weights import bit_sums
from castoff.trainers.task import Task
from castoff.trainers.task.contract import state as validated


class KeptTask:
    """A task whose ranks are compared whenever its state is kept."""

    def __init__(self, task: Task):
        self._task = task

    def states(self, context: RankContext) -> list[dict[str, Any]]:
        """On rank 0: one state, if it is that of every rank, bit for bit; else each rank's, by rank.

        All ranks must call it.
        """
        mine = validated(self._task, self._task.state_dict())
        if context.world_size == 1 or context.alike(_digest(mine)):
            return [mine]
        return context.gather_on_main(_on_cpu(mine))

    def load_states(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from there.

        Raises:
            ConfigError: each rank has its own state, and there are other ranks now.
            CheckpointError: the task reads something that its `state_dict` did not give then.
        """
        kind = type(self._task).__qualname__
        if len(states) not in (1, context.world_size):
            raise ConfigError(
                [
                    f"parallel.world_size: there are {context.world_size} ranks, but {kind}.state_dict gave "
                    f"each of the checkpoint's {len(states)} ranks a state of its own; take {len(states)} "
                    "ranks, or start over with training.fresh: true. A state that all ranks share, as by "
                    "all_reduce, resumes on any number"
                ]
            )
        mine = states[0] if len(states) == 1 else states[context.rank]
        try:
            self._task.load_state_dict(mine)
        except KeyError as error:
            raise CheckpointError(
                f"{kind}.load_state_dict reads {error}, but when the checkpoint was made, state_dict gave "
                f"{few([repr(key) for key in mine]) or 'nothing'}; read what is new with "
                "state.get(…), or start over with training.fresh: true"
            ) from error


def _digest(state: Any) -> Tensor:
    """A whole number that follows from every bit of a state."""
    text, sums = hashlib.sha256(), [torch.zeros((), dtype=torch.int64)]
    for part in _parts(state):
        if isinstance(part, Tensor):
            text.update(f"{tuple(part.shape)} {part.dtype}".encode())
            dense = part if part.layout is torch.strided else part.to_dense()
            sums.append(bit_sums([dense.dequantize() if dense.is_quantized else dense])[0].cpu())
        else:
            text.update(part + b"\0")
    odd = torch.arange(1, 2 * len(sums), 2)
    number = int.from_bytes(text.digest()[:8], "big", signed=True)
    return (torch.stack(sums) * odd).sum()[None] + number


def _parts(value: Any) -> Iterator[Tensor | bytes]:
    """Tensors, and the rest as bytes, in an order that is that of each rank."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield repr(key).encode()
            yield from _parts(each)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} of {len(value)}".encode()
        for each in value:
            yield from _parts(each)
    elif isinstance(value, set):  # whose order is each process's own
        yield repr(sorted(map(repr, value))).encode()
    else:
        yield repr(value).encode()


def _on_cpu(value: Any) -> Any:
    """As it can be sent to rank 0."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_on_cpu, value))
    return value
