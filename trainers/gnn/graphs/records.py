"""A graph as bytes, and back: all that a torch_geometric `Data` holds, without pickle.

A record is a table of the attributes, in msgpack, and after it their tensors, each at a multiple of 16 bytes.
Reading it is one copy: the graph owns its memory, so a transform may change it in place.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject

_ALIGNED = 16
_LENGTH = struct.Struct("<I")
_TENSOR, _TUPLE, _BIG = 1, 2, 3
"""Codes for types that msgpack does not have."""

_TYPES = tuple(
    getattr(torch, name)
    for name in (
        *("float32", "int64", "bool", "float64", "int32", "uint8", "int16", "int8", "float16", "bfloat16"),
        *("complex64", "complex128", "uint16", "uint32", "uint64"),
    )
)
"""Types by their numbers in records: add new ones only at the end."""
_NUMBERS = {dtype: number for number, dtype in enumerate(_TYPES)}


def encoded(data: Data) -> bytes:
    """Encode a graph as a record. When it is read, tensors are on the CPU and require no gradient.

    Raises:
        TypeError: it holds something that is neither tensor, number, text nor a container of these; the
            message names the attribute.
    """
    kind = type(data)
    if not isinstance(data, Data) or isinstance(data, Batch):
        raise TypeError(f"is a {kind.__name__}, not a torch_geometric Data")
    parts: list[bytes] = []
    table = []
    size = 0
    for name, value in data.to_dict().items():
        if isinstance(value, Tensor):
            content = _content(value, name)
            table.append((name, _NUMBERS[value.dtype], tuple(value.shape), size))
            parts += [content, bytes(-len(content) % _ALIGNED)]
            size += len(parts[-2]) + len(parts[-1])
        else:
            table.append((name, -1, _boxed(value, name), 0))
    head = _ENCODER.encode((None if kind is Data else _path_of(kind), table))
    return b"".join((_LENGTH.pack(len(head)), head, bytes(-(_LENGTH.size + len(head)) % _ALIGNED), *parts))


def decoded(record: bytearray) -> Data:
    """Decode a record; the graph's tensors share its memory.

    Raises:
        ValueError: it is not a record.
    """
    try:
        (length,) = _LENGTH.unpack_from(record)
        first = _LENGTH.size + length
        kind, table = _DECODER.decode(memoryview(record)[_LENGTH.size : first])
        first += -first % _ALIGNED
        make = Data if kind is None else _class_of(kind)
        return make.from_dict(
            {
                name: value if number < 0 else _tensor(record, _TYPES[number], value, first + offset)
                for name, number, value, offset in table
            }
        )
    except (ValueError, struct.error, msgspec.MsgspecError, IndexError, TypeError, RuntimeError) as error:
        raise ValueError(f"is not a graph's record: {error}") from error


def _content(tensor: Tensor, name: str) -> bytes:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.dtype not in _NUMBERS:
        kind = f"{tensor.dtype}, {tensor.layout}"
        raise TypeError(f"{name}: is a tensor of {kind}, which cannot be written; make it a dense one")
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def _tensor(record: bytearray, dtype: torch.dtype, shape: Any, offset: int) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(record, dtype=dtype, count=count, offset=offset).view(shape)


def _path_of(kind: type[Data]) -> str:
    """The import path of a graph's class, which determines how graphs become batches."""
    path = f"{kind.__module__}.{kind.__qualname__}"
    try:
        imported = _class_of(path)
    except ConfigError as error:
        raise TypeError(f"is a {path}, which cannot be imported when it is read; {error}") from error
    if imported is not kind:
        raise TypeError(f"is a {path}, but that name means another class")
    return path


@functools.cache
def _class_of(path: str) -> type[Data]:
    graph_class: type[Data] = PyObject(path).resolve()
    return graph_class


# --- What is not a tensor ------------------------------------------------------------------------------


def _boxed(value: Any, name: str) -> Any:
    """Convert a value to msgpack's types and three additional ones."""
    if value is None or isinstance(value, (bool, float, str, bytes)):
        return value
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**64
        return value if fits else msgspec.msgpack.Ext(_BIG, str(value).encode())
    if isinstance(value, Tensor):
        inside = (_NUMBERS.get(value.dtype), tuple(value.shape), _content(value, name))
        return msgspec.msgpack.Ext(_TENSOR, _ENCODER.encode(inside))
    if type(value) is tuple:
        return msgspec.msgpack.Ext(_TUPLE, _ENCODER.encode([_boxed(item, name) for item in value]))
    if type(value) is list:
        return [_boxed(item, name) for item in value]
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        return {key: _boxed(item, name) for key, item in value.items()}
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"{name}: is a {kind}, which cannot be written; make it a tensor, a number or a text")


def _unboxed(code: int, content: memoryview) -> Any:
    if code == _BIG:
        return int(bytes(content))
    inside = _DECODER.decode(content)
    if code == _TUPLE:
        return tuple(inside)
    number, shape, flat = inside
    return _tensor(bytearray(flat), _TYPES[number], shape, 0)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ext_hook=_unboxed)
