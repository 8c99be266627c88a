"""Copies a training's state to host memory quickly, into the same memory each time."""

from __future__ import annotations

import io
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

_ATOMS = frozenset({type(None), bool, int, float, str, torch.Size, torch.dtype, torch.device})
"""Immutable types that `torch.load(weights_only=True)` reads."""

_WITH_PINNED_MEMORY = ("cuda", "xpu")


class Staging:
    """Copies nested containers of tensors; each copy overwrites the one before.

    Whole storages are copied, as torch.save writes them: tensors that share a storage share it in the copy.
    Host memory is allocated once, and again only for storages of other sizes.
    """

    def __init__(self) -> None:
        self._buffers: _Buffers = {}

    def copy(self, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Copy all parts to host memory; the copy shares nothing with them.

        Raises:
            TypeError: a part has a value that `torch.load(weights_only=True)` would not read.
        """
        copying = _Copying(self._buffers)
        whole = {part: copying.of(_plain(state), part) for part, state in parts.items()}
        for device in copying.devices:
            torch.accelerator.synchronize(device)
        self._buffers = copying.used
        return whole


class _Buffer:
    """Host memory for a copy of a storage, and the tensors already made on it.

    They are kept, since making a tensor takes longer than copying a small one.
    """

    def __init__(self, size: int, pinned: bool):
        memory = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
        self.storage = memory.untyped_storage()
        self._views: dict[tuple[Any, ...], torch.Tensor] = {}

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in this memory with `tensor`'s type, offset, shape and strides."""
        where = (tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (tensor.dtype, *where)
        if key not in self._views:
            made = torch.empty(0, dtype=tensor.dtype, device="cpu")
            self._views[key] = made.set_(self.storage, *where)
        return self._views[key]


_Buffers = dict[tuple[int, bool], deque[_Buffer]]
"""Buffers by (size in bytes, pinned), in the order of use."""


class _Copying:
    """A copy in progress, which reuses the last copy's buffers if their sizes match."""

    def __init__(self, free: _Buffers):
        self._free = free
        self.used: _Buffers = defaultdict(deque)
        self.devices: set[torch.device] = set()
        """Devices whose transfers may not be finished."""
        self._copied: dict[tuple[torch.device, int], tuple[_Buffer, torch.UntypedStorage]] = {}
        """The buffer of each storage by its address, and the storage, which keeps the address from being
        reused."""

    def of(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind in (torch.Tensor, nn.Parameter) and _is_a_view_of_bytes(value):
            return self._tensor(value)
        if kind is dict:
            return dict(self._items(value, where))
        if kind is OrderedDict:  # a module's state dict has versions in the attribute _metadata
            copy = OrderedDict(self._items(value, where))
            copy.__dict__.update(self.of(vars(value), where))
            return copy
        if kind in (list, tuple, set):
            return kind([self.of(each, f"{where}.{number}") for number, each in enumerate(value)])
        return _through_a_file(value, where)

    def _items(self, value: Mapping[Any, Any], where: str) -> Iterator[tuple[Any, Any]]:
        for key, item in value.items():
            is_atom = type(key) in _ATOMS
            yield key if is_atom else self.of(key, where), self.of(item, f"{where}.{key}")

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        storage = tensor.untyped_storage()
        place = (tensor.device, storage.data_ptr())
        if place not in self._copied:
            self._copied[place] = self._filled(storage, tensor.device), storage
        return self._copied[place][0].like(tensor)

    def _filled(self, storage: torch.UntypedStorage, device: torch.device) -> _Buffer:
        key = (storage.nbytes(), device.type in _WITH_PINNED_MEMORY)
        free = self._free.get(key)
        buffer = free.popleft() if free else _Buffer(*key)
        buffer.storage.copy_(storage, non_blocking=True)
        if device.type != "cpu":
            self.devices.add(device)
        self.used[key].append(buffer)
        return buffer


def tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of every tensor in nested containers; the name is for messages."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from tensors(item, f"{name}.{number}" if name else str(number))


def _plain(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return state if isinstance(state, dict) else dict(state)


def _is_a_view_of_bytes(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.device.type != "meta"
    )


def _through_a_file(value: Any, where: str) -> Any:
    """Copy a value by saving and loading it, which also checks that a checkpoint can hold it."""
    file = io.BytesIO()
    try:
        torch.save(value, file)
        file.seek(0)
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(
            f"a checkpoint cannot hold {where}, a {kind}: it holds only what "
            "torch.load(weights_only=True) reads, which are tensors, numbers, text, None, and dicts, "
            "lists, tuples and sets of these"
        ) from error
