"""Checkpoints that another library writes, made durable and checked before they are used; without torch."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from castoff.trainers.files.durable import checksummed, flush, read_checksummed, replace_file, sum_of

_SEAL = "castoff.json"

logger = logging.getLogger(__name__)


def seal(checkpoint: Path) -> None:
    """Flush a folder's files to disk, and record their sizes and CRC-32 sums in it.

    Raises:
        OSError: the disk refuses.
    """
    files = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and path.name != _SEAL:
            flush(path)
            named = path.relative_to(checkpoint).as_posix()
            files[named] = {"size": path.stat().st_size, "crc32": sum_of(path)}
    for folder in (*(path for path in checkpoint.rglob("*") if path.is_dir()), checkpoint.parent):
        flush(folder)
    replace_file(checkpoint / _SEAL, checksummed({"files": files}))


def newest(folder: Path, pattern: str) -> Path | None:
    """The newest undamaged checkpoint: of those whose names match, the one with the largest number.

    Others that are newer are logged: they are damaged, or their writing was interrupted.
    """
    for path in reversed(_numbered(folder, pattern)):
        problem = _problem(path)
        if problem is None:
            return path
        logger.warning("checkpoint %s is not used: %s", path, problem)
    return None


def sealed(folder: Path, pattern: str) -> list[Path]:
    """The folders whose names match and that `seal` has completed, damaged or not, in order of their
    numbers.
    """
    return [path for path in _numbered(folder, pattern) if (path / _SEAL).is_file()]


def _numbered(folder: Path, pattern: str) -> list[Path]:
    paths = [*folder.iterdir()] if folder.is_dir() else []
    numbered = [(int(found[1]), path) for path in paths if (found := re.fullmatch(pattern, path.name))]
    return [path for _, path in sorted(numbered)]


def _problem(checkpoint: Path) -> str | None:
    """How a checkpoint is damaged; None: it is not."""
    try:
        files = read_checksummed(checkpoint / _SEAL)["files"]
        for name, expected in files.items():
            size = (checkpoint / name).stat().st_size
            if size != expected["size"]:
                return f"{name} has {size} bytes instead of {expected['size']}"
            if sum_of(checkpoint / name) != expected["crc32"]:
                return f"{name} does not match its checksum"
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        return "it was not written to the end" if missing == _SEAL else f"{missing} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None
