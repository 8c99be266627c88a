"""A part of a checkpoint as a file of torch.save: `model` is model.pt."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch

from castoff.trainers.checkpointing.verification import manifest_of
from castoff.trainers.checkpointing.written_by import lacks
from castoff.trainers.files.durable import SummedFile


def write_file(path: Path, state: Mapping[str, Any]) -> dict[str, int]:
    """Write a part to a new file, and flush it to disk; returns its size and checksum."""
    with SummedFile(path) as file:
        torch.save(state, cast("IO[bytes]", file))
    return {"size": file.size, "crc32": file.crc32}


def load_file(checkpoint: Path, part: str, *, mapped: bool = False) -> dict[str, Any]:
    """Load a part's file to the CPU; unpickles only tensors and plain containers.

    `mapped`: tensors are read when they are used.

    Raises:
        CheckpointError: the checkpoint has no such file.
    """
    file = checkpoint / f"{part}.pt"
    if checkpoint.is_dir() and not file.exists():
        raise lacks(checkpoint, manifest_of(checkpoint), file.name)
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    return state
