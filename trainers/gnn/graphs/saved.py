"""Written graphs: a folder with their records, one after the other, and where each of them begins.

`graphs` and `offsets` (int64, one more than there are graphs) are mapped, so that all ranks and workers of a
host share their pages; `about.json` describes them, and is written last.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from torch_geometric.data import Data

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.files.durable import (
    checksummed,
    read_checksummed,
    write_checksummed,
)
from castoff.trainers.gnn.graphs.records import decoded

FORMAT = 2
"""Version of the records, and of all code that makes them and is in no fingerprint."""

RECORDS, OFFSETS, ABOUT = "graphs", "offsets", "about.json"
_OFFSET = struct.Struct("<q")


def write(folder: Path, records: Iterable[bytes], about: Mapping[str, Any]) -> int:
    """Write records to an empty folder as they come; return their number.

    Raises:
        OSError: they cannot be written.
    """
    number, size, total = 0, 0, hashlib.sha256()
    with (folder / RECORDS).open("wb") as graphs, (folder / OFFSETS).open("wb") as offsets:
        offsets.write(_OFFSET.pack(0))
        for record in records:
            graphs.write(record)
            total.update(record)
            number += 1
            size += len(record)
            offsets.write(_OFFSET.pack(size))
        _to_disk(graphs)
        _to_disk(offsets)
    content = {"format": FORMAT, "graphs": number, "bytes": size, "digest": total.hexdigest(), **about}
    write_checksummed(folder / ABOUT, checksummed(content))
    return number


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def read_about(folder: Path) -> dict[str, Any] | None:
    """The content of a folder's about.json; None: it has no written graphs, or not all of them."""
    try:
        about = read_checksummed(folder / ABOUT)
        sizes = [(folder / name).stat().st_size for name in (RECORDS, OFFSETS)]
    except (OSError, ValueError):
        return None
    whole = about.get("format") == FORMAT and sizes == [
        about["bytes"],
        (about["graphs"] + 1) * _OFFSET.size,
    ]
    return about if whole else None


class Saved:
    """The graphs of a folder, by index.

    Each process maps the files when it reads its first graph; a pickle holds only the path.

    Raises:
        ConfigError: the folder has no written graphs, or not all of them.
    """

    def __init__(self, folder: Path):
        about = read_about(folder)
        if about is None:
            raise ConfigError(
                ["holds no written graphs, or only some of them; remove it, and they are written again"],
                str(folder),
            )
        self.folder = folder
        self.about = about
        self._length: int = about["graphs"]
        self._maps: tuple[memoryview, memoryview] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Data:
        """A graph that owns its memory.

        Raises:
            ConfigError: its record is damaged, or the folder was removed.
        """
        if not 0 <= index < self._length:
            raise IndexError(index)
        records, offsets = self._maps or self._mapped()
        first, last = offsets[index], offsets[index + 1]
        try:
            return decoded(bytearray(records[first:last]))
        except ValueError as error:
            raise ConfigError(
                [f"graph {index} {error}; the folder is damaged: remove it, and it is written again"],
                str(self.folder),
            ) from error

    def _mapped(self) -> tuple[memoryview, memoryview]:
        try:
            self._maps = (_map(self.folder / RECORDS), _map(self.folder / OFFSETS).cast("q"))
        except OSError as error:
            raise ConfigError(
                [f"cannot be read any more: {error.strerror}; start again, and it is written again"],
                str(self.folder),
            ) from error
        return self._maps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": None}


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
