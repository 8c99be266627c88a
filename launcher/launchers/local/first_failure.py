"""The record of the first rank that failed, in the format that job scripts use.

Imported only when a rank has failed: most ranks do not fail, and json would delay all their starts.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

Failure = dict[str, object]
"""A record with rank, host, code, signal and time."""


def recorded(path: Path | None, failure: Failure) -> tuple[Failure, str | None]:
    """Record a failure if it is the first; return the first failure, and why a record could not be written.

    torchrun counts as one rank; if there is a record already, it is of one of torchrun's own ranks.
    """
    if path is None:
        return failure, None
    trouble = None
    try:
        with contextlib.suppress(FileExistsError), path.open("x") as file:  # the first writer wins
            file.write(json.dumps(failure) + "\n")
    except OSError as error:
        trouble = f"cannot write {path}: {error.strerror}"
        with contextlib.suppress(OSError):  # half a record must not keep another rank from writing its own
            path.unlink()
    return _read(path) or failure, trouble


def _read(path: Path) -> Failure | None:
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(path.read_text())
        if isinstance(record, dict) and {"rank", "host", "code", "signal"} <= record.keys():
            return record
    return None
