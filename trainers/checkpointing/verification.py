"""Verifies checkpoints by their manifests: a process alone, or all ranks, each of which reads a share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from castoff.trainers.checkpointing.written_by import check_format
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.files.durable import read_checksummed, sum_of

MANIFEST = "manifest.json"


def manifest_of(path: Path) -> dict[str, Any]:
    """A checkpoint's manifest; empty if it cannot be read."""
    try:
        return read_checksummed(path / MANIFEST)
    except (OSError, ValueError):
        return {}


def problem_of(path: Path) -> str | None:
    """How a checkpoint is damaged; None: it is not.

    Raises:
        CheckpointError: it is undamaged, but has a format that this castoff does not read.
    """
    files = _listed(path)
    return files if isinstance(files, str) else _problem(path, files, files)


def common_problem_of(path: Path, context: RankContext) -> str | None:
    """The same with all ranks, which must all call it: each reads a share of the bytes.

    Raises:
        CheckpointError: as in `problem_of`; raised on all ranks.
    """
    files = context.on_main(lambda: _listed(path))
    if isinstance(files, str):
        return files
    mine = _shares(files, context.world_size)[context.rank]
    every = context.gather_on_main(_problem(path, files, mine))
    return context.on_main(lambda: next((problem for problem in every if problem is not None), None))


_Files = Mapping[str, Mapping[str, int]]


def _listed(path: Path) -> _Files | str:
    """The files in a checkpoint's manifest, or what is wrong with it."""
    try:
        manifest = read_checksummed(path / MANIFEST)
        check_format(path, manifest)
        files: _Files = manifest["files"]
        _sizes(files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return files


def _sizes(files: _Files) -> dict[str, int]:
    return {name: expected["size"] for name, expected in files.items()}


def _problem(path: Path, files: _Files, mine: Iterable[str]) -> str | None:
    try:
        for name in mine:
            size = (path / name).stat().st_size
            if size != files[name]["size"]:
                return f"{name} has {size} bytes instead of {files[name]['size']}"
            if sum_of(path / name) != files[name]["crc32"]:
                return f"{name} does not match its checksum"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _shares(files: _Files, ranks: int) -> list[list[str]]:
    """The files by rank, with about as many bytes for each."""
    shares: list[list[str]] = [[] for _ in range(ranks)]
    bytes_of = [0] * ranks
    for name, size in sorted(_sizes(files).items(), key=lambda each: (-each[1], each[0])):
        least = bytes_of.index(min(bytes_of))
        shares[least].append(name)
        bytes_of[least] += size
    return shares
