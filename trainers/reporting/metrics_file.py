"""A run's metrics file: rank 0 writes a JSON line for each report."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff.trainers.files.durable import flush

logger = logging.getLogger(__name__)


class MetricsFile:
    """`metrics.jsonl`: whole lines; a resumed run keeps those up to its checkpoint.

    If the disk is full, a warning is logged and lines are kept in memory until the next write: no line is
    lost while the process lives, and none is written in part.
    """

    def __init__(self, path: Path, *, keeps_nan: bool = False):
        """`keeps_nan`: write NaN and infinities as Python's json does; else as null."""
        self.path = path
        self._keeps_nan = keeps_nan
        self._waiting: list[bytes] = []
        self._whole: int | None = None
        """Bytes of the file up to the end of its last whole line; None: not yet read."""

    def write(self, values: Mapping[str, Any]) -> None:
        """Append a line with `values` and the time."""
        line = dict(values) if self._keeps_nan else {name: _finite(one) for name, one in values.items()}
        line["time"] = round(time.time(), 3)
        had_to_wait = bool(self._waiting)
        self._waiting.append(json.dumps(line).encode() + b"\n")
        try:
            self._append()
        except OSError as error:
            if not had_to_wait:
                logger.warning("%s cannot be written (%s): its lines wait", self.path, error.strerror)

    def position(self) -> int:
        """The file's length in bytes, after all lines have been written to disk.

        Raises:
            OSError: lines cannot be written.
        """
        self._append()
        if self._whole:
            flush(self.path)
            flush(self.path.parent)
        return self._whole or 0

    def cut(self, position: int) -> None:
        """Truncate the file to `position` bytes, and to its last whole line.

        Raises:
            OSError: the file cannot be shortened.
        """
        self._waiting.clear()
        self._whole = _whole_lines(self.path, position)
        if self._whole < position:
            logger.warning(
                "%s: it has %d bytes of whole lines, but the checkpoint recorded %d; the rest is lost",
                self.path,
                self._whole,
                position,
            )
        if self.path.exists():
            os.truncate(self.path, self._whole)
            flush(self.path)

    def read(self) -> list[dict[str, Any]]:
        """Read every whole line."""
        if not self.path.exists():
            return []
        records = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # cut off when its writer was killed
            if isinstance(record, dict):
                records.append(record)
        return records

    def _append(self) -> None:
        """Write the waiting lines after the file's last whole line."""
        if not self._waiting:
            return
        if self._whole is None:
            self._whole = _whole_lines(self.path)
        data = b"".join(self._waiting)
        with self.path.open("ab", buffering=0) as file:
            if file.tell() > self._whole:  # part of a line, from when the disk was full
                file.truncate(self._whole)
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._whole += len(data)
        self._waiting.clear()


def _whole_lines(path: Path, end: int | None = None) -> int:
    """The end in bytes of the last whole line in the first `end` bytes."""
    return path.read_bytes()[:end].rfind(b"\n") + 1 if path.exists() else 0


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
