"""Making folders of the user's own."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def make_folders(folder: Path, mode: int = 0o700) -> None:
    """Make a folder and those that it lies in, as far as they are not there, each with this mode.

    `Path.mkdir(parents=True)` gives its mode to the last alone. The umask of many groups has others write to
    the rest, who could then rename what lies in them.

    Raises:
        OSError: one cannot be made, or something else is in its place.
    """
    if folder.is_dir():
        return
    for one in (*folder.parents[::-1], folder):
        if one.is_dir():
            continue
        try:
            one.mkdir(mode=mode, exist_ok=True)
        except FileExistsError as error:  # mkdir(2) says this of a file, too
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(one)) from error
