"""Writes the weights of a checkpoint as one safetensors file, a tensor at a time.

The library safetensors needs all tensors in memory; the format is a JSON header and the tensors' bytes
(huggingface.co/docs/safetensors, Format).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from castoff.trainers.checkpointing.checkpoints import Checkpoints, has_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.checkpointing.part_files import load_file
from castoff.trainers.checkpointing.shards import SHARDS, memory_of
from castoff.trainers.checkpointing.verification import MANIFEST, manifest_of
from castoff.trainers.files.durable import replacing

_TYPES = {
    **{torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8"},
    **{torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8"},
    **{torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"},
    **{torch.bool: "BOOL", torch.complex64: "C64"},
}

_ALIGNED = 8
"""The header's length is a multiple of this, so that mapped tensors are aligned."""


_OF_TORCH = (".pt", ".pth", ".bin", ".ckpt")
"""Endings of files that programs read by torch.load."""


class Exported(NamedTuple):
    """What was written."""

    checkpoint: Path
    """The checkpoint that has these weights."""
    tensors: int
    size: int
    """Bytes of the file."""


def export_safetensors(source: str | Path, target: str | Path, *, ema: bool = False) -> Exported:
    """Write the weights of a run's best checkpoint, or of its newest, as one safetensors file.

    `source`: a run's folder, or that of a checkpoint, whose weights may be sharded. `ema`: the averaged
    weights. A weight with several names is written once, as `safetensors.torch.save_model` does, and the
    other names are in the file's metadata.

    Raises:
        CheckpointError: there is no intact checkpoint, or it has no averaged weights; or `target` is named as
            a file for torch.load, or its folder does not exist.
        OSError: the file cannot be written.
    """
    _check(Path(target))
    checkpoint = _chosen(Path(source))
    part = "ema" if ema else "model"
    if not has_part(checkpoint, part):
        raise CheckpointError(
            f"checkpoint {checkpoint} has no averaged weights, because training.ema_decay was not set; "
            "leave out --ema"
        )
    weights = _sharded(checkpoint, part) if (checkpoint / SHARDS).is_dir() else _whole(checkpoint, part)
    dropped = _other_names(weights.tied)
    described = {name: each for name, each in weights.described.items() if name not in dropped}
    problems = [f"{name} is {_kind(each)}" for name, each in described.items() if not _fits(each)]
    if problems:
        raise CheckpointError(
            f"checkpoint {checkpoint}: {problems[0]}, which a safetensors file cannot hold; load the weights "
            "with castoff.trainers.load_part in place of a file"
        )
    # The largest numbers first, so that each tensor is aligned, as the library does.
    order = sorted(described, key=lambda name: (-described[name][1].itemsize, name))
    with replacing(Path(target)) as draft, draft.open("wb") as file:
        file.write(_header({name: described[name] for name in order}, {"format": "pt", **dropped}))
        for name in order:
            file.write(memoryview(_bytes_of(weights.read(name))))
        size = file.tell()
    return Exported(checkpoint, len(order), size)


def _check(target: Path) -> None:
    if target.suffix in _OF_TORCH:
        raise CheckpointError(
            f"{target}: a safetensors file is written, which torch.load cannot read; name it "
            f"{target.with_suffix('.safetensors')}"
        )
    if not target.parent.exists():
        raise CheckpointError(f"{target}: folder {target.parent} does not exist")


class _Weights(NamedTuple):
    described: Mapping[str, Any]
    """Shapes and types by name."""
    tied: Mapping[str, str]
    """Names of weights that are the same as an earlier one, and the latter's names."""
    read: Callable[[str], Tensor]


def _sharded(checkpoint: Path, part: str) -> _Weights:
    from castoff.trainers.checkpointing.shard_files import Shards

    shards, start = Shards(checkpoint), f"{part}."
    tied = {
        name.removeprefix(start): first.removeprefix(start)
        for name, first in manifest_of(checkpoint).get("tied", {}).items()
        if name.startswith(start)
    }
    described = {key.removeprefix(start): shards.described(key) for key in shards.keys(part)}
    return _Weights(described, tied, lambda name: shards.read(start + name))


def _whole(checkpoint: Path, part: str) -> _Weights:
    state = load_file(checkpoint, part, mapped=True)
    seen: dict[Any, str] = {}
    tied = {}
    for name, value in state.items():
        first = seen.setdefault(memory_of(value), name)
        if first != name:
            tied[name] = first
    described = {
        name: (value.shape, value.dtype) if isinstance(value, Tensor) else None
        for name, value in state.items()
    }
    return _Weights(described, tied, lambda name: state[name])


def _chosen(source: Path) -> Path:
    if (source / MANIFEST).exists():
        return Checkpoints(source.parent).whole(source)
    for folder in (source / "checkpoints", source):
        checkpoints = Checkpoints(folder)
        found = checkpoints.best() or checkpoints.newest()
        if found is not None:
            return found
    raise CheckpointError(
        f"{source} has no castoff checkpoint; pass a run's folder, such as trained/NAME, or a checkpoint's, "
        "such as trained/NAME/checkpoints/step-0000002000"
    )


def _other_names(tied: Mapping[str, str]) -> dict[str, str]:
    """Names that are left out, and the name that stands for each: the first in the alphabet."""
    groups: dict[str, list[str]] = {}
    for name, first in tied.items():
        groups.setdefault(first, [first]).append(name)
    return {name: min(names) for names in groups.values() for name in names if name != min(names)}


def _fits(described: Any) -> bool:
    return described is not None and described[1] in _TYPES


def _kind(described: Any) -> str:
    return "no tensor" if described is None else f"of type {described[1]}"


def _header(tensors: Mapping[str, tuple[torch.Size, torch.dtype]], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name, (shape, dtype) in tensors.items():
        end = begin + shape.numel() * dtype.itemsize
        fields[name] = {"dtype": _TYPES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(fields).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
