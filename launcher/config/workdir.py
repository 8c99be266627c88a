"""The folder in which a job's program starts: `workdir`. Pure, but for the home folder."""

from __future__ import annotations

import re
from pathlib import Path

_HOME = re.compile(r"~(?:/|$)")


def for_cd(folder: str | None) -> str | None:
    """A folder as `cd` takes it: a bare `-`, `-P` or a name that CDPATH holds would mean another."""
    return folder if folder is None or folder.startswith("/") or _HOME.match(folder) else f"./{folder}"


def as_path(folder: str | None) -> Path:
    """The same as a path, relative to where the job is submitted; `~` is this user's home folder."""
    path = Path(folder or ".")
    return path.expanduser() if folder and _HOME.match(folder) else path
