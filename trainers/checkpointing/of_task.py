"""A task's state in a checkpoint: a single one if it is equal on all ranks, else that of each rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.bits import bit_sums
from castoff.trainers.task import Task
from castoff.trainers.task.contract import state as validated


class KeptTask:
    """A task's state, which is compared between ranks whenever it is saved."""

    def __init__(self, task: Task):
        self._task = task

    def states(self, context: RankContext) -> list[dict[str, Any]]:
        """On rank 0, the states to save: a single one if it is the same, bit for bit, on all ranks, else one
        per rank.

        All ranks must call it.
        """
        mine = validated(self._task, self._task.state_dict())
        if context.world_size == 1 or context.alike(_digest(mine)):
            return [mine]
        return context.gather_on_main(_on_cpu(mine))

    def load_states(self, states: Sequence[dict[str, Any]], context: RankContext) -> None:
        """Resume from the states of a checkpoint.

        Raises:
            ConfigError: each rank has its own state, and the number of ranks has changed.
            CheckpointError: the task reads an entry that the saved state does not have.
        """
        kind = type(self._task).__qualname__
        if len(states) not in (1, context.world_size):
            raise ConfigError(
                [
                    f"parallel.world_size: there are {context.world_size} ranks, but {kind}.state_dict "
                    f"gave each of the checkpoint's {len(states)} ranks a different state; use "
                    f"{len(states)} ranks, or start over with training.fresh: true. A state that is the "
                    "same on all ranks, for example after all_reduce, can resume on any number of ranks"
                ]
            )
        mine = states[0] if len(states) == 1 else states[context.rank]
        try:
            self._task.load_state_dict(mine)
        except KeyError as error:
            raise CheckpointError(
                f"{kind}.load_state_dict reads {error}, but when the checkpoint was made, state_dict "
                f"gave {few([repr(key) for key in mine]) or 'nothing'}; read new keys with state.get(…), "
                "or start over with training.fresh: true"
            ) from error


def _digest(state: Any) -> Tensor:
    """A number that depends on every bit of a state."""
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
    """A state's tensors and, as bytes, its other values, in the same order on every rank."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        yield f"{type(value).__name__} of {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, set):  # its order differs between processes
        yield repr(sorted(map(repr, value))).encode()
    else:
        yield repr(value).encode()


def _on_cpu(value: Any) -> Any:
    """The state with its tensors on the CPU, for sending it to rank 0."""
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_on_cpu, value))
    return value
