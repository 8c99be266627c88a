"""The record of a start's first failure, as each scheduler's script keeps it.

Imported once a rank has failed: most jobs do well, and json would cost each of their starts.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

Failure = dict[str, object]
"""A record of rank, host, code, signal and time."""


def recorded(path: Path | None, failure: Failure) -> tuple[Failure, str | None]:
    """The failure that counts, which is `failure` unless another is recorded already; and why it could not be
    written.

    Under torchrun, which is one rank here, the record is that of a rank of its own.
    """
    if path is None:
        return failure, None
    trouble = None
    try:
        with contextlib.suppress(FileExistsError), path.open("x") as file:  # the first writer wins
            file.write(json.dumps(failure) + "\n")
    except OSError as error:
        trouble = f"cannot write {path}: {error.strerror}"
        with contextlib.suppress(OSError):  # half of it must not keep another from writing its own
            path.unlink()
    return _read(path) or failure, trouble


def _read(path: Path) -> Failure | None:
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(path.read_text())
        if isinstance(record, dict) and {"rank", "host", "code", "signal"} <= record.keys():
            return record
    return None
