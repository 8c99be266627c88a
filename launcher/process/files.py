"""Files that are there whole or not at all, and folders that nobody else can write to."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a draft beside `path` for writing; it takes the place of `path` once the block ends without error.

    A link or a device at `path` is replaced, never written through. `durable`: whether the new content has
    reached the disk before the old is given up.

    Raises:
        OSError: it cannot be written there.
    """
    # Not derived from the file's own name, which may be as long as names can be.
    draft = path.with_name(f".castoff-{os.urandom(6).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it is not there: renamed, or never made
            draft.unlink()


def replace(path: Path, content: str | bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Write a file, as `replacing`. Text becomes UTF-8, its surrogates the bytes that they stand for.

    Raises:
        OSError: it cannot be written there.
    """
    with replacing(path, mode, durable=durable) as file:
        file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)


def make_folders(folder: Path, mode: int = 0o700) -> None:
    """Make a folder and those that it lies in, as far as they are not there, each with this mode.

    `Path.mkdir(parents=True)` gives its mode to the last alone. The umask of many groups has others write to
    the rest, who could then rename what lies in them.

    Raises:
        OSError: one cannot be made, or something else is in its place.
    """
    if folder.is_dir():
        return
    for missing in (*folder.parents[::-1], folder):
        if missing.is_dir():
            continue
        try:
            missing.mkdir(mode=mode, exist_ok=True)
        except FileExistsError as error:  # mkdir(2) says this of a file, too
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing)) from error
