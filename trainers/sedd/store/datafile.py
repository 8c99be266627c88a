"""The token store of a training: an existing one, or one made once from a file."""

from __future__ import annotations

import errno
import shlex
import zlib
from pathlib import Path

import msgspec

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.files.durable import sum_of
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import FORMAT, Filters, TokenStore

_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)

_EVERYTHING = Filters()


def store_of(
    datafile: str | Path,
    filters: Filters = _EVERYTHING,
    *,
    cache: Path | None = None,
    processes: int | None = None,
    field: str = "data.datafile",
) -> Path:
    """The folder of a data file's token store: the data file itself, or a store made of it with `filters`.

    The store of a FASTA or .pt file is next to it, as `NAME.….tokens`, or in the folder `cache` if nothing
    can be written there. It is built if it is missing or damaged, or if the file has changed; other filters
    make another store. If several processes need it, one builds and the others wait.

    `field`: the field that the user has set to the data file, for errors.

    Raises:
        ConfigError: the file does not exist or cannot be read, or its store cannot be written.
    """
    if not str(datafile):
        raise ConfigError(
            [f"{field}: is '', as from a variable that is not set; write a file, or leave it out"]
        )
    path = expanded(str(datafile), field).absolute()
    if path.is_dir():
        return _opened(path, datafile, field)
    if not path.exists():
        raise ConfigError([f"{field}: is {str(datafile)!r}, but there is nothing at {path}"])
    if not path.is_file():
        raise ConfigError(
            [
                f"{field}: is {str(datafile)!r}, a pipe or a device, which can be read only once; make a "
                "store from it, and pass that folder: python -m castoff.trainers.sedd.prepare "
                f"{shlex.quote(str(path))} --out FOLDER"
            ]
        )
    stores = [_store_path(path.parent, path, filters)]
    if cache is not None:
        stores.append(_store_path(cache.absolute(), path, filters, str(path.parent)))
    for store in stores:
        if _is_of(store, path):
            return store
    refusal = ""
    for store in stores:
        try:
            build([path], store, filters, processes=processes, is_whole=lambda store: _is_of(store, path))
            return store
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            refusal = f"{store}: {error.strerror}"
    raise ConfigError(
        [
            f"{field}: {path} needs a token store, which cannot be written here ({refusal}); make one in "
            "a writable folder, and pass that folder: python -m castoff.trainers.sedd.prepare "
            f"{shlex.quote(str(path))} --out FOLDER"
        ]
    )


def _opened(path: Path, datafile: str | Path, field: str) -> Path:
    try:
        return TokenStore.open(path).folder
    except ConfigError as error:
        problems = str(error).splitlines()
        raise ConfigError(
            [f"{field}: is {str(datafile)!r}, but {problem}" for problem in problems]
        ) from error


def _store_path(folder: Path, path: Path, filters: Filters, *more: str) -> Path:
    """The path of a file's store: a different one for other filters, and for another format of stores."""
    words = [str(FORMAT), *more, *map(str, msgspec.structs.astuple(filters))]
    return folder / f"{path.name}.{zlib.crc32(repr(words).encode()):08x}.tokens"


def _is_of(store: Path, path: Path) -> bool:
    """Whether there is an intact store of the file's present content.

    A file with another modification time, because it was copied or touched, is read to compare its checksum.
    """
    try:
        origins = TokenStore.open(store).manifest.origins
    except ConfigError:
        return False
    status = path.stat()
    if [origin.size for origin in origins] != [status.st_size]:
        return False
    (origin,) = origins
    return origin.modified == status.st_mtime_ns or origin.crc32 == sum_of(path)
