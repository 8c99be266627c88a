"""Which files a folder of code holds, as they were placed: beside the folder, in .NAME.files."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.remote.frames import CHUNK, File

_SUFFIX = ".files"


class Placed(msgspec.Struct, array_like=True):
    """A file as it was placed, so that it need not be read again to know that it is the same."""

    file: File
    mtime: int


class Listing(NamedTuple):
    """A folder of code, and its files."""

    folder: Path
    files: list[Placed]

    def first_changed(self) -> str | None:
        """The first file that is not as it was placed; None: all are."""
        for one in self.files:
            name = os.fsdecode(one.file.name)
            if not _is_unchanged(self.folder / name, one):
                return name
        return None


def listing_of(folder: Path) -> Listing | None:
    """The listing of a folder; None where there is none."""
    try:
        text = listing_path(folder).read_bytes()
        return Listing(folder, msgspec.msgpack.decode(text, type=list[Placed]))
    except (OSError, msgspec.MsgspecError):
        return None


def listing_path(folder: Path) -> Path:
    """Where the listing of a folder is."""
    return folder.with_name(f".{folder.name}{_SUFFIX}")


def write_listing(folder: Path, placed: list[Placed]) -> None:
    """Write the listing of a folder, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path = listing_path(folder)
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    draft.write_bytes(msgspec.msgpack.encode(placed))
    draft.replace(path)


def listed_folders(project: Path) -> list[Path]:
    """The folders of a project that are there and have a listing, the newest first.

    Raises:
        OSError: the project cannot be read.
    """
    lists = [path for path in project.iterdir() if path.name[0] == "." and path.name.endswith(_SUFFIX)]
    lists.sort(key=lambda path: path.lstat().st_mtime, reverse=True)
    folders = [path.with_name(path.name[1 : -len(_SUFFIX)]) for path in lists]
    return [folder for folder in folders if folder.is_dir()]


def digest_of(path: Path) -> bytes:
    """The SHA-256 of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            digest.update(part)
    return digest.digest()


def _is_unchanged(path: Path, one: Placed) -> bool:
    try:
        if one.file.target is not None:
            return os.fsencode(os.readlink(path)) == one.file.target  # noqa: PTH115 - as it is written
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_size != one.file.size:
            return False
        return about.st_mtime_ns == one.mtime or digest_of(path) == one.file.digest
    except OSError:
        return False
