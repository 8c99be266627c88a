"""Stores as Julia writes them: Zarr.jl's folders byte by byte, and HDF5.jl's order of axes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numcodecs  # type: ignore[import-untyped]
import numpy
import zarr
from numpy.typing import NDArray

from castoff.trainers.gnn.causets.order import Order
from castoff.trainers.gnn.causets.sprinkling import sprinkled

ANY = NDArray[Any]
ZARR_3 = int(zarr.__version__.partition(".")[0]) >= 3


def orders(number: int, seed: int = 0, spread: int = 24) -> list[Order]:
    """Sprinklings in two, three and four dimensions, in turn."""
    generator = numpy.random.default_rng(seed)
    return [sprinkled(8 + int(generator.integers(spread)), 2 + each % 3, generator) for each in range(number)]


def julia_zarr(folder: Path, content: Mapping[str, Any], *, root: bool = True) -> Path:
    """What `dict_to_zarr` writes: arrays are as Julia has them, and lie in memory as there.

    `root`: with a group at the top.
    """
    folder.mkdir(parents=True)
    if root:
        (folder / ".zgroup").write_text('{"zarr_format":2}')
        (folder / ".zattrs").write_text("{}")
    for name, value in content.items():
        if isinstance(value, Mapping):
            julia_zarr(folder / name, value)
        else:
            _julia_array(folder / name, numpy.atleast_1d(numpy.asarray(value)))
    return folder


def _julia_array(folder: Path, array: ANY) -> None:
    """Its shape is given in reverse, since the first axis is together in memory."""
    folder.mkdir()
    seen = numpy.ascontiguousarray(array.T)
    length = int(numpy.ceil((1e6 / seen.itemsize) ** (1 / seen.ndim)))
    chunks = [min(size, length) for size in seen.shape]
    codec = numcodecs.Blosc("lz4", clevel=9, shuffle=2)
    (folder / ".zarray").write_text(
        json.dumps(
            {
                "chunks": chunks,
                "compressor": {"blocksize": 0, "clevel": 9, "cname": "lz4", "id": "blosc", "shuffle": 2},
                "dtype": seen.dtype.str,
                "fill_value": None,
                "filters": None,
                "order": "C",
                "shape": list(seen.shape),
                "zarr_format": 2,
            }
        )
    )
    assert chunks == list(seen.shape), "these are small"
    (folder / ".".join("0" * seen.ndim)).write_bytes(codec.encode(seen))


def python_zarr(folder: Path, content: Mapping[str, Any], form: int = 3) -> Path:
    """What zarr itself writes; zarr 2 has a format of its own alone."""
    which: dict[str, Any] = {"zarr_format": form} if ZARR_3 else {}
    _fill(zarr.open_group(str(folder), mode="w", **which), content)
    return folder


def _fill(group: Any, content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        if isinstance(value, Mapping):
            _fill(group.create_group(name), value)
        else:
            array = numpy.atleast_1d(numpy.asarray(value))
            (group.create_array if ZARR_3 else group.array)(name, data=array)


def julia_hdf5(path: Path, content: Mapping[str, Any]) -> Path:
    """What HDF5.jl writes: a matrix is read transposed."""
    with h5py.File(path, "w") as file:
        _fill_hdf5(file, content)
    return path


def _fill_hdf5(group: Any, content: Mapping[str, Any]) -> None:
    for name, value in content.items():
        if isinstance(value, Mapping):
            _fill_hdf5(group.create_group(name), value)
        else:
            group.create_dataset(name, data=numpy.asarray(value).T)


def one_by_one(found: list[Order], **more: Any) -> dict[str, Any]:
    """A group for each, as `produce_data` makes them: adj[i, j] says that i precedes j."""
    return {
        f"cset_{number}": {
            "adj": order.astype(numpy.uint8),
            "manifold_like": True,
            "dimension": 2 + (number - 1) % 3,
            **{name: value[number - 1] for name, value in more.items()},
        }
        for number, order in enumerate(found, 1)
    }


def stacked(found: list[Order], *, last: bool = True) -> dict[str, Any]:
    """Arrays of all samples with room to spare; Julia has them along its last axis, or the first."""
    room = max(map(len, found)) + 2
    matrices = numpy.zeros((room, room, len(found)), dtype=numpy.float32)
    past = numpy.full((room, len(found)), numpy.nan, dtype=numpy.float32)
    for number, order in enumerate(found):
        matrices[: len(order), : len(order), number] = order
        past[: len(order), number] = order.sum(0)
    if not last:
        matrices, past = numpy.moveaxis(matrices, -1, 0), past.T
    return {
        "adjacency_matrix": matrices,
        "in_degree": past,
        "cset_size": numpy.array([len(order) for order in found]),
        "dimension": numpy.array([2.0 + number % 3 for number in range(len(found))]),
    }
