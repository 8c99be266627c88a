"""Separates the states of a training whose tensors are sharded into shards, and what rank 0 writes alone.

A tensor is sharded if it is a DTensor, as those of torch's `fully_shard`. In states of which rank 0 writes
the rest, such as `training`, a mark is left in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

SHARDS = "shards"
"""The folder of shards in a checkpoint."""

MARK = "sharded"
"""First of the two elements of a mark; the other is the tensor's key in the folder of shards."""


class Shard(NamedTuple):
    """This rank's part of a tensor, or a value that rank 0 keeps beside the shards."""

    value: Any
    """The part itself, as a tensor that is not sharded."""
    offsets: torch.Size
    """Where it begins in the whole tensor."""
    whole: torch.Size
    """The whole tensor's shape."""
    place: tuple[str, ...]
    """The keys of the states that lead to it."""


class Divided(NamedTuple):
    """The states of a training as they are saved."""

    rest: dict[str, Mapping[str, Any]]
    """What rank 0 writes alone, by part."""
    shards: dict[str, Shard]
    """What this rank writes, by key."""
    tied: dict[str, str]
    """Keys of weights that are the same tensor as an earlier one, and the latter's keys."""


def is_sharded(value: object) -> TypeGuard[Tensor]:
    """Whether a value is a tensor of which each rank may hold a part."""
    module = sys.modules.get("torch.distributed.tensor")  # takes a second to import; else there are none
    return module is not None and isinstance(value, module.DTensor)


def has_shards(state: Any) -> bool:
    """Whether there is a sharded tensor in nested containers."""
    return any(is_sharded(value) for _, value in leaves(state, ()))


def divide(parts: Mapping[str, Mapping[str, Any]], *, whole: tuple[str, ...], is_main: bool) -> Divided:
    """Separate shards from the rest.

    `whole`: parts that are written beside the shards as a whole if any of their tensors is sharded, so that
    other programs find all weights there.
    """
    divided = Divided({}, {}, {})
    for part, state in parts.items():
        if not has_shards(state):
            if is_main:
                divided.rest[part] = state
            continue
        together = part in whole
        seen: dict[tuple[object, ...], str] = {}
        for place, value in leaves(state, (part,)):
            if is_sharded(value) or (together and is_main):
                key = key_of(place)
                divided.shards[key] = _shard(value, place)
                if together:
                    first = seen.setdefault(memory_of(value), key)
                    if first != key:
                        divided.tied[key] = first
        if is_main and not together:
            divided.rest[part] = replaced(state, (part,), _marked)
    return divided


def leaves(state: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(place, value) of everything in nested containers that is none itself."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from leaves(value, (*place, key))
    elif isinstance(state, (list, tuple)) and not is_mark(state):
        for number, value in enumerate(state):
            yield from leaves(value, (*place, number))
    else:
        yield place, state


def replaced(state: Any, place: tuple[Any, ...], by: Callable[[tuple[Any, ...], Any], Any]) -> Any:
    """A copy of nested containers in which each value that is no container is `by(place, value)`."""
    if type(state) is dict:
        return {key: replaced(value, (*place, key), by) for key, value in state.items()}
    if type(state) in (list, tuple) and not is_mark(state):
        return type(state)(replaced(value, (*place, number), by) for number, value in enumerate(state))
    return by(place, state)


def key_of(place: tuple[Any, ...]) -> str:
    """The key of the value at a place."""
    return ".".join(map(str, place))


def is_mark(value: object) -> bool:
    """Whether a value stands for a sharded tensor."""
    return type(value) is tuple and len(value) == 2 and value[0] == MARK and isinstance(value[1], str)


def chunk_of(tensor: Any) -> tuple[torch.Size, torch.Size]:
    """Where this rank's part of a sharded tensor begins, and its shape."""
    (chunk,) = tensor.__create_chunk_list__()  # what torch.distributed.checkpoint asks of tensors
    return torch.Size(chunk.offsets), torch.Size(chunk.sizes)


def local_of(tensor: Any) -> Tensor:
    """This rank's part of a sharded tensor, in the same memory."""
    local: Tensor = tensor.detach().to_local()
    return local


def _marked(place: tuple[Any, ...], value: Any) -> Any:
    return (MARK, key_of(place)) if is_sharded(value) else value


def _shard(value: Any, place: tuple[Any, ...]) -> Shard:
    names = tuple(map(str, place))
    if is_sharded(value):
        return Shard(local_of(value), chunk_of(value)[0], value.shape, names)
    shape = value.shape if isinstance(value, Tensor) else torch.Size()
    return Shard(value, torch.Size([0] * len(shape)), shape, names)


def memory_of(value: Any) -> tuple[object, ...]:
    """The same for tensors that are one."""
    local = local_of(value) if is_sharded(value) else value
    if not isinstance(local, Tensor) or not local.numel():
        return (id(value),)
    return (local.device, local.data_ptr(), local.dtype, tuple(local.shape), local.stride(), value.shape)
