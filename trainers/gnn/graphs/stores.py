"""Stores of samples: Zarr folders, of either format and as Julia writes them, and HDF5 files.

Julia stores arrays with the first index contiguous in memory and Python with the last, so what Julia writes
is read with all axes reversed: a matrix comes transposed, and samples along the last axis come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import numpy.typing

from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.graphs.zarr_folders import group_names, root_of

Array: TypeAlias = "numpy.typing.NDArray[Any]"

COUNTS = ("num_causal_sets", "num_samples")
"""Arrays that may hold a store's number of samples."""

_NUMBERED = re.compile(r"(.+)_(\d+)")
_HDF5 = (".h5", ".hdf5", ".hdf")
_HDF5_BEGINS = b"\x89HDF\r\n\x1a\n"
_AT_ONCE = 1 << 27
"""Largest number of bytes of an array that are read and kept at a time."""


class Store:
    """An open store: how many samples it has, and the arrays of each."""

    def __init__(self, path: Path, root: Any, groups: Sequence[str] | None):
        self.path = path
        self.root = root
        """zarr's or h5py's group, which readers get."""
        self.groups = groups
        """The name of each sample's group; None: the arrays hold all samples."""
        self._blocks: dict[str, _Blocks] = {}
        self._names: list[str] | None = None
        self.count = self._count()

    def __len__(self) -> int:
        return self.count

    def names(self) -> list[str]:
        """The paths of a sample's arrays."""
        if self._names is None:
            group = self.root if self.groups is None else self.root[self.groups[0]]
            self._names = [name for name in _arrays(group) if name not in COUNTS]
        return self._names

    def find(self, known: Sequence[str]) -> str | None:
        """Find the array with the first of some names, also inside groups; or the only array in a group of
        such a name.
        """
        names = self.names()
        for each in known:
            found = [name for name in names if name == each or name.endswith(f"/{each}")]
            if found:
                return min(found, key=lambda name: name.count("/"))
        inside = [name for name in names if name.partition("/")[0] in known]
        return inside[0] if len(inside) == 1 else None

    def read(self, name: str, index: int, field: str) -> Array:
        """Read an array of one sample.

        Raises:
            ConfigError: there is no such array, or it lacks the sample.
        """
        if self.groups is None:
            if name not in self._blocks:
                self._blocks[name] = _Blocks(self._array(self.root, name, field), self.count, name)
            return self._blocks[name].sample(index)
        array = self._array(self.root[self.groups[index]], name, field)
        return numpy.asarray(array[()])

    def _array(self, group: Any, name: str, field: str) -> Any:
        array = group.get(name)
        if array is None or not hasattr(array, "shape"):
            near = suggestion(name, [each for each in self.names() if each != name])
            raise ConfigError([f"{field}: there is no array {name}{near}"], str(self.path))
        return array

    def _count(self) -> int:
        for name in COUNTS:
            if name in self.root and hasattr(self.root[name], "shape"):
                return self._recorded_count(name)
        if self.groups is not None:
            return len(self.groups)
        shapes = {name: tuple(self.root[name].shape or ()) for name in _arrays(self.root)}
        matrices = {_samples_in(shape) for shape in shapes.values() if len(shape) == 3} - {None}
        firsts = {shape[0] if shape else None for shape in shapes.values()}
        for candidates in (matrices, firsts):
            if len(candidates) == 1 and None not in candidates:
                return int(next(iter(candidates)) or 0)
        raise ConfigError(
            [
                f"the number of its samples is unknown: {_listing(shapes)}; write their number as an array "
                "num_samples, or one group cset_1, cset_2 … for each"
            ],
            str(self.path),
        )

    def _recorded_count(self, name: str) -> int:
        recorded = numpy.asarray(self.root[name][()]).reshape(-1)
        whole = len(recorded) == 1 and recorded.dtype.kind in "biuf" and numpy.isfinite(recorded[0])
        number = int(recorded[0]) if whole and recorded[0] == int(recorded[0]) else -1
        if number < 0 or (self.groups is not None and number > len(self.groups)):
            contradiction = f", but it has {len(self.groups)} groups" if self.groups is not None else ""
            raise ConfigError([f"{name}: holds {recorded.tolist()}{contradiction}"], str(self.path))
        return number


class _Blocks:
    """An array of all samples, read in blocks of the samples that share a chunk."""

    def __init__(self, array: Any, count: int, name: str):
        self._array = array
        shape = tuple(array.shape)
        self._axis = _axis(shape, count)
        if self._axis is None or shape[self._axis] < count:
            raise ConfigError([f"{name}: has the shape {shape}, but there are {count} samples"])
        chunk = (getattr(array, "chunks", None) or shape)[self._axis]
        a_sample = max(int(numpy.prod(shape)) // max(shape[self._axis], 1) * array.dtype.itemsize, 1)
        self._length = max(1, min(int(chunk), _AT_ONCE // a_sample))
        self._first = -1
        self._block: Array | None = None

    def sample(self, index: int) -> Array:
        """The part of the array that belongs to one sample."""
        first = index - index % self._length
        if self._block is None or first != self._first:
            span = slice(first, first + self._length)
            taken = (span,) if self._axis == 0 else (..., span)
            self._block = numpy.asarray(self._array[taken])
            self._first = first
        position = index - first
        return numpy.asarray(self._block[position] if self._axis == 0 else self._block[..., position])


def _axis(shape: Sequence[int], count: int) -> int | None:
    """The axis of the samples: the first, unless only the last one is as long as there are samples."""
    if not shape:
        return None
    return len(shape) - 1 if shape[0] != count and shape[-1] == count else 0


def _samples_in(shape: Sequence[int]) -> int | None:
    """The number of square matrices in an array of three axes; None: they are not square."""
    if shape[1] == shape[2]:
        return shape[0]
    return shape[2] if shape[0] == shape[1] else None


def _listing(shapes: Mapping[str, Sequence[int]]) -> str:
    """The arrays in a store, for an error."""
    if not shapes:
        return "there is no array in it"
    few = [f"{name} {tuple(shape)}" for name, shape in list(shapes.items())[:8]]
    more = f" and {len(shapes) - 8} more" if len(shapes) > 8 else ""
    return f"there are {', '.join(few)}{more}"


def _arrays(group: Any, depth: int = 2) -> list[str]:
    """The paths of the arrays in a group and its subgroups."""
    paths = []
    for name in sorted(group.keys()):
        part = group.get(name)
        if hasattr(part, "shape"):
            paths.append(name)
        elif part is not None and depth > 1:  # None: a broken link
            paths += [f"{name}/{inner}" for inner in _arrays(part, depth - 1)]
    return paths


def _per_sample(names: Sequence[str]) -> list[str] | None:
    """The groups cset_1, cset_2 …, in the order of their numbers; None: there are none."""
    numbered = [(match[1], int(match[2]), name) for name in names if (match := _NUMBERED.fullmatch(name))]
    prefixes = {prefix for prefix, _, _ in numbered}
    if len(prefixes) != 1:
        return None
    return [name for _, _, name in sorted(numbered)]


# --- As a whole -----------------------------------------------------------------------------------


def zarr_group_to_dict(group: Any, target: dict[str, Any]) -> None:
    """Put all arrays of a zarr or h5py group into `target`, and those of its subgroups into nested dicts."""
    for name in group.keys():  # noqa: SIM118  # zarr 2 iterates over no names
        part = group[name]
        if hasattr(part, "shape"):
            target[name] = numpy.asarray(part[()])
        else:
            zarr_group_to_dict(part, target.setdefault(name, {}))


def zarr_file_to_dict(path: str | Path) -> dict[str, Any]:
    """All arrays of a Zarr folder or an HDF5 file, in nested dicts by the names of groups and arrays.

    Raises:
        ConfigError: it is not a store, or cannot be read.
    """
    arrays: dict[str, Any] = {}
    with _root(Path(path)) as root:
        zarr_group_to_dict(root, arrays)
    return arrays


# --- Opening --------------------------------------------------------------------------------------


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Open a store for reading.

    Raises:
        ConfigError: it is not a store, cannot be read, or the number of its samples is unknown.
    """
    with _root(path) as root:
        if path.is_dir():
            groups = group_names(path)
        else:
            groups = [name for name in root if hasattr(root.get(name), "keys")]
        yield Store(path, root, _per_sample(groups))


@contextmanager
def _root(path: Path) -> Iterator[Any]:
    """The top group of a Zarr folder (zarr's) or an HDF5 file (h5py's)."""
    if path.is_dir():
        yield root_of(path)
        return
    if path.suffix not in _HDF5 and _begins(path) != _HDF5_BEGINS:
        raise ConfigError(
            ["is not a store: a Zarr folder or an HDF5 file (.h5, .hdf5) can be read"], str(path)
        )
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        locks = "; set HDF5_USE_FILE_LOCKING=FALSE where the file system has no locks"
        more = locks if "lock" in str(error) else ""
        raise ConfigError([f"cannot be read as HDF5: {error}{more}"], str(path)) from error
    with file:
        yield file


def _begins(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5_BEGINS))
    except OSError as error:
        raise ConfigError([f"cannot be read: {error.strerror}"], str(path)) from error
