"""The folder in which a job's program starts (`workdir`)."""

from __future__ import annotations

import re
from pathlib import Path

_HOME = re.compile(r"~(?:/|$)")


def for_cd(folder: str | None) -> str | None:
    """A folder as an argument of `cd`: with ./ if it is relative, since `-`, `-P` and CDPATH are special."""
    return folder if folder is None or folder.startswith("/") or _HOME.match(folder) else f"./{folder}"


def as_path(folder: str | None) -> Path:
    """The folder as a path, relative to the folder of submission; `~` is this user's home."""
    path = Path(folder or ".")
    return path.expanduser() if folder and _HOME.match(folder) else path
