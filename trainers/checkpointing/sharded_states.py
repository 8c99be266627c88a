"""Restores states from either form of a checkpoint, with shards or without, into tensors of either kind.

Every process reads what it needs by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from castoff.trainers.checkpointing.part_files import load_file
from castoff.trainers.checkpointing.shard_files import Shards
from castoff.trainers.checkpointing.shards import (
    SHARDS,
    chunk_of,
    has_shards,
    is_mark,
    is_sharded,
    local_of,
    replaced,
)
from castoff.trainers.checkpointing.verification import manifest_of
from castoff.trainers.checkpointing.written_by import lacks


def gathered(checkpoint: Path, part: str) -> dict[str, Any]:
    """A part of a checkpoint with shards, with whole tensors in host memory.

    Raises:
        CheckpointError: the checkpoint has no such part.
    """
    shards = Shards(checkpoint)
    if not (checkpoint / f"{part}.pt").exists():
        return {key: shards.read(f"{part}.{key}") for key in _keys(shards, checkpoint, part)}

    def read(place: tuple[Any, ...], value: Any) -> Any:
        return shards.read(value[1]) if is_mark(value) else value

    states: dict[str, Any] = replaced(load_file(checkpoint, part), (part,), read)
    return states


def weights_for(module: nn.Module, checkpoint: Path, part: str) -> dict[str, Any]:
    """The weights of a checkpoint for `module.load_state_dict`, sharded as the module's are.

    Raises:
        CheckpointError: the checkpoint has no such part.
    """
    wanted = module.state_dict()
    if not (checkpoint / SHARDS).is_dir():
        state = load_file(checkpoint, part, mapped=has_shards(wanted))
        return {name: _as(wanted.get(name), value) for name, value in state.items()}
    shards = Shards(checkpoint)
    state, sharded = {}, {}
    for name in _keys(shards, checkpoint, part):
        key, like = f"{part}.{name}", wanted.get(name)
        described = shards.described(key)
        if is_sharded(like) and described is not None and described[0] == like.shape:
            state[name] = sharded[key] = torch.empty_like(like, dtype=described[1])
        else:
            state[name] = shards.read(key)
    shards.read_into(sharded)
    return state


def training_for(optimizer: torch.optim.Optimizer, checkpoint: Path) -> dict[str, Any]:
    """The part `training` of a checkpoint, with the optimizer's state sharded as its parameters are.

    Raises:
        CheckpointError: the checkpoint has no such part.
        KeyError: the part lacks an entry.
    """
    # Mapped, since no rank may have memory for a whole state that it is to shard.
    states = load_file(checkpoint, "training", mapped=True)
    shards = Shards(checkpoint) if (checkpoint / SHARDS).is_dir() else None
    numbers = [
        number for group in states["engine"]["optimizer"]["param_groups"] for number in group["params"]
    ]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=False))  # whether they fit is checked later
    sharded: dict[str, Tensor] = {}

    def placed(place: tuple[Any, ...], value: Any) -> Any:
        of_optimizer = place[1:4] == ("engine", "optimizer", "state") and len(place) == 6
        like = by_number.get(place[4]) if of_optimizer else None
        if shards is not None and is_mark(value):
            key = value[1]
            described = shards.described(key)
            if is_sharded(like) and described is not None and described[0] == like.shape:
                sharded[key] = torch.empty_like(like, dtype=described[1], requires_grad=False)
                return sharded[key]
            value = shards.read(key)
        if not isinstance(value, Tensor):
            return value
        return _of_parameter(like, value) if is_sharded(like) and value.ndim else value.clone()

    placed_states: dict[str, Any] = replaced(states, ("training",), placed)
    if shards is not None:
        shards.read_into(sharded)
    return placed_states


def _keys(shards: Shards, checkpoint: Path, part: str) -> list[str]:
    """The names of a part's weights."""
    keys = shards.keys(part)
    if not keys:
        raise lacks(checkpoint, manifest_of(checkpoint), f"{part}.pt")
    return [key.removeprefix(f"{part}.") for key in keys]


def _of_parameter(like: Any, value: Tensor) -> Tensor:
    """What an optimizer keeps for a sharded parameter: in its shape or another, as factors."""
    if value.shape == like.shape:
        made: Tensor = _as(like, value)
        return made
    mesh = like.device_mesh
    return DTensor.from_local(value.clone(), mesh, [Replicate()] * mesh.ndim, run_check=False)


@torch.no_grad()
def _as(like: Any, value: Any) -> Any:
    """This rank's part of a whole tensor, sharded as `like`; the value itself if `like` is not sharded."""
    if not is_sharded(like) or not isinstance(value, Tensor) or value.shape != like.shape:
        return value
    offsets, sizes = chunk_of(like)
    made = torch.empty_like(like, dtype=value.dtype, requires_grad=False)
    local_of(made).copy_(value[tuple(slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))])
    return made
