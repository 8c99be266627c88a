"""The folder `shards` of a checkpoint: a file per rank, in the format of torch.distributed.checkpoint.

Any program can read it with `torch.distributed.checkpoint.load`; ours unpickles nothing but tensors, plain
containers and torch's description of what is where.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.state_dict_saver import save

from castoff.trainers.checkpointing.shards import SHARDS, Shard
from castoff.trainers.checkpointing.together import Writers, of_rank
from castoff.trainers.files.durable import SummedFile, flush

_OF_METADATA = {
    "torch": ("Size",),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.metadata": (
        *("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata"),
        *("ChunkStorageMetadata", "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING"),
    ),
}
"""What may be unpickled of torch's description, by module."""


# --- Writing --------------------------------------------------------------------------------------


def write_shards(folder: Path, shards: Mapping[str, Shard], writers: Writers) -> dict[str, dict[str, int]]:
    """Write all ranks' shards, and flush them to disk. All ranks must call it.

    The folder must not exist. Returns the files' sizes and checksums, by their paths in the folder's parent.

    Raises:
        OSError: a rank cannot write; raised on all ranks, and marked with that rank.
    """
    files = _SummedFiles()
    with _without_causes():
        save(
            {},
            storage_writer=_Writer(folder, files),
            planner=_SavePlan(shards),
            process_group=writers.group,
        )
    every = writers.together(lambda: files.written)
    if writers.is_main:
        flush(folder)
    return {f"{folder.name}/{name}": found for each in every for name, found in sorted(each.items())}


@contextmanager
def _without_causes() -> Iterator[None]:
    """Raise the error of the first rank that failed in place of torch's list of all."""
    try:
        yield
    except CheckpointException as error:
        failures = cast("dict[int, tuple[Exception, Any]]", error.failures)
        rank = min(failures)
        raise of_rank(rank, failures[rank][0]) from None


class _File(SummedFile):
    """With what torch.distributed.checkpoint needs of a file besides."""

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        """Do nothing: the context closes it."""


class _SummedFiles(FileSystem):
    """Files that are summed while they are written, and flushed to disk."""

    def __init__(self) -> None:
        self.written: dict[str, dict[str, int]] = {}
        """Sizes and checksums by name."""

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with _File(Path(path)) as file:
            yield file
        self.written[Path(path).name] = {"size": file.size, "crc32": file.crc32}

    def rename(self, path: Any, new_path: Any) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)


class _Writer(FileSystemWriter):
    def __init__(self, folder: Path, files: _SummedFiles):
        # The files flush themselves, and all tensors are in host memory.
        super().__init__(folder, sync_files=False, per_thread_copy_ahead=0)
        self.fs = files

    def storage_meta(self) -> StorageMeta | None:
        """None: the folder is renamed, and a number drawn for each save would change its checksum."""
        return None


class _SavePlan(DefaultSavePlanner):
    """Writes shards that lie in host memory already, where they were described when they were copied."""

    def __init__(self, shards: Mapping[str, Shard]):
        super().__init__()
        self._shards = shards

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        items = [_item(key, each) for key, each in self._shards.items() if not _is_left_out(each)]
        self.plan = SavePlan(items, planner_data={key: each.place for key, each in self._shards.items()})
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        value = self._shards[write_item.index.fqn].value
        if isinstance(value, Tensor):
            return value
        file = io.BytesIO()
        torch.save(value, file)
        return file


def _is_left_out(shard: Shard) -> bool:
    """Whether it is an empty part of a tensor that is not empty itself."""
    return isinstance(shard.value, Tensor) and not shard.value.numel() and bool(shard.whole.numel())


def _item(key: str, shard: Shard) -> WriteItem:
    value = shard.value
    if not isinstance(value, Tensor):
        return WriteItem(MetadataIndex(key), WriteItemType.BYTE_IO)
    data = TensorWriteData(
        ChunkStorageMetadata(shard.offsets, value.shape),
        TensorProperties.create_from_tensor(value),
        shard.whole,
    )
    return WriteItem(MetadataIndex(key, shard.offsets), WriteItemType.SHARD, tensor_data=data)


# --- Reading --------------------------------------------------------------------------------------


class Shards:
    """The shards of a checkpoint, which any number of processes can read, each by itself.

    Raises:
        OSError, pickle.UnpicklingError: torch's description of them cannot be read.
    """

    def __init__(self, checkpoint: Path):
        self._reader = _Reader(checkpoint / SHARDS)
        self._metadata = self._reader.read_metadata()
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)

    def keys(self, part: str) -> list[str]:
        """The keys of a part's values."""
        return [key for key in self._metadata.state_dict_metadata if key.startswith(f"{part}.")]

    def described(self, key: str) -> tuple[torch.Size, torch.dtype] | None:
        """Shape and type of a tensor; None: the value is none.

        Raises:
            KeyError: there is no such key.
        """
        found = self._metadata.state_dict_metadata[key]
        return (found.size, found.properties.dtype) if isinstance(found, TensorStorageMetadata) else None

    def read_into(self, tensors: Mapping[str, Tensor]) -> None:
        """Read tensors, or this rank's parts of sharded ones, into their memory.

        Raises:
            RuntimeError, ValueError: there is no such key, or it has another shape.
        """
        self._read(dict(tensors))

    def read(self, key: str) -> Any:
        """A whole tensor in host memory, or another value."""
        found = self.described(key)
        values: dict[str, Any] = {key: None if found is None else torch.empty(found[0], dtype=found[1])}
        self._read(values)
        return values[key]

    def _read(self, values: dict[str, Any]) -> None:
        planner = _LoadPlan()
        planner.set_up_planner(values, self._metadata, is_coordinator=True)
        plan: LoadPlan = planner.create_local_plan()
        self._reader.read_data(plan, planner).wait()


class _LoadPlan(DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Load a value that is not a tensor, without running its pickle."""
        self.state_dict[read_item.dest_index.fqn] = torch.load(value, weights_only=True)


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Unpickle torch's description, and nothing else."""
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _OnlyMetadata(file).load()
        return metadata


class _OnlyMetadata(pickle.Unpickler):
    def __init__(self, file: IO[bytes]):
        super().__init__(file)

    def find_class(self, module: str, name: str) -> Any:
        is_type = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_type or name in _OF_METADATA.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{SHARDS}/.metadata names {module}.{name}, which does not belong there")
