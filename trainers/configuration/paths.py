"""Paths in a configuration, with `~` and variables."""

from __future__ import annotations

import os
import re
from pathlib import Path

from castoff.trainers.configuration.fields import ConfigError


def expanded(path: str, field: str) -> Path:
    """Expand `~` and variables such as $SCRATCH in a field's path, as a shell would.

    Raises:
        ConfigError: a variable is not set, or there is no such user.
    """
    filled = os.path.expandvars(path)
    left = re.search(r"\$\{?(\w+)", filled)
    if left is not None:
        raise ConfigError(
            [
                f"{field}: is {path!r}, but {left[1]} is not set here; set it, or write the full path, "
                "such as /scratch/me"
            ]
        )
    try:
        return Path(filled).expanduser()
    except RuntimeError as error:
        user = Path(filled).parts[0]
        raise ConfigError(
            [f"{field}: is {path!r}, but the home folder of {user} is unknown here; write the full path"]
        ) from error


def check_writable(file: Path, field: str) -> None:
    """Check, before long work, that a file can be written: its folder exists, and it is not itself a folder.

    Raises:
        ConfigError: it cannot.
    """
    folder = file.absolute().parent
    if file.exists() and not file.is_file():
        kind = "a folder" if file.is_dir() else "not a file"
        raise ConfigError([f"{field}: is {str(file)!r}, which is {kind}; name a file"])
    if not folder.is_dir():
        raise ConfigError([f"{field}: is {str(file)!r}, but there is no folder {folder}; create it first"])
