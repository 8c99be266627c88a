"""Zarr folders as zarr 2 and zarr 3 open them; Julia's may have no group at the top."""

from __future__ import annotations

import json
from collections import ChainMap
from pathlib import Path
from typing import Any

from castoff.trainers.configuration.fields import ConfigError

_OF_FORMAT_2 = (".zgroup", ".zarray")
_OF_FORMAT_3 = "zarr.json"


def group_names(path: Path) -> list[str]:
    """The names of the top groups in a Zarr folder, found by their files, since there may be very many."""
    return [folder.name for folder in path.iterdir() if folder.is_dir() and _node(folder) == "group"]


def _node(path: Path) -> str | None:
    """The type of Zarr node in a folder: array, group, or None."""
    if (path / ".zarray").exists():
        return "array"
    if (path / ".zgroup").exists():
        return "group"
    try:
        return str(json.loads((path / _OF_FORMAT_3).read_bytes())["node_type"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError([f"cannot be read as Zarr: {path / _OF_FORMAT_3}: {error}"], str(path)) from error


def root_of(path: Path) -> Any:
    """Open a Zarr folder as zarr's group, for reading.

    With zarr 3, it can be passed to `zarr.open_group`, and its `root` is the folder: some readers open what
    they get, with `zarr.open_group(store)` or `zarr.open_group(store.root)`.

    Raises:
        ConfigError: it is not a Zarr folder with a group, or cannot be read.
    """
    node = _node(path)
    if node == "array":
        raise ConfigError(
            ["is a single array; a store is a group of arrays, or of groups of them"], str(path)
        )
    rootless = node is None
    if rootless and not any(_node(each) for each in path.iterdir() if each.is_dir()):
        raise ConfigError(["is a folder without Zarr data; name one that ends in .zarr"], str(path))
    import zarr

    try:
        newer = int(zarr.__version__.partition(".")[0]) >= 3
        return _by_zarr_3(path, rootless) if newer else _by_zarr_2(path, rootless)
    except ConfigError:
        raise
    except Exception as error:  # zarr's own errors change from release to release
        raise ConfigError([f"cannot be read as Zarr: {type(error).__name__}: {error}"], str(path)) from error


def _by_zarr_3(path: Path, rootless: bool) -> Any:
    import zarr
    from zarr.storage import LocalStore, StorePath

    local: Any = LocalStore
    store = (_rooted(local, path) if rootless else local)(path, read_only=True)
    group = zarr.open_group(store, mode="r", use_consolidated=False)
    bases: tuple[Any, ...] = (zarr.Group, StorePath)
    below = {"root": path, "__truediv__": lambda group, path: StorePath(store, group.path) / path}
    return type("Root", bases, below)(group._async_group)


def _rooted(local: Any, path: Path) -> Any:
    """A subclass of zarr's folder store that adds the top group which the folder lacks."""
    older = any((each / mark).exists() for each in path.iterdir() for mark in _OF_FORMAT_2)
    name = ".zgroup" if older else _OF_FORMAT_3
    content = json.dumps({"zarr_format": 2} if older else {"zarr_format": 3, "node_type": "group"}).encode()

    async def get(self: Any, key: str, prototype: Any = None, *more: Any, **others: Any) -> Any:
        if key != name:
            return await local.get(self, key, prototype, *more, **others)
        from zarr.core.buffer import default_buffer_prototype

        return (prototype or default_buffer_prototype()).buffer.from_bytes(content)

    return type("Rooted", (local,), {"get": get})


def _by_zarr_2(path: Path, rootless: bool) -> Any:
    import zarr

    if (path / _OF_FORMAT_3).exists():
        raise ConfigError(
            [f"has Zarr's format 3, which zarr {zarr.__version__} cannot read; install zarr>=3"], str(path)
        )
    storage: Any = zarr.storage
    store = storage.DirectoryStore(str(path))
    if rootless:
        store = storage.KVStore(ChainMap({".zgroup": b'{"zarr_format": 2}'}, store))
    return zarr.open_group(store, mode="r")
