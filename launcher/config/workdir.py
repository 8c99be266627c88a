"""The folder in which a job's program starts: `workdir`."""

from __future__ import annotations

import re
from pathlib import Path

_HOME = re.compile(r"~(?:/|$)")


def for_cd(folder: str | None) -> str | None:
    """A folder as `cd` takes it: `-`, `-P` or a name in CDPATH would mean something else."""
    return folder if folder is None or folder.startswith("/") or _HOME.match(folder) else f"./{folder}"


def as_path(folder: str | None) -> Path:
    """The folder as a path, relative to where the job is submitted; `~` is this user's home folder."""
    path = Path(folder or ".")
    return path.expanduser() if folder and _HOME.match(folder) else path
