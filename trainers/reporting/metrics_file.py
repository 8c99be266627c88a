"""The record of a run: one JSON line per report, written by rank 0 as it happens."""

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
    """`metrics.jsonl`: whole lines, kept up to the checkpoint that a run resumes from.

    Where the disk is full a line waits for the next one, and a warning says so: no line is lost as
    long as the process lives, and none stands there in half.
    """

    def __init__(self, path: Path, *, keeps_nan: bool = False):
        """`keeps_nan`: what JSON does not have (nan, inf) is written as Python has it, else as null."""
        self.path = path
        self._keeps_nan = keeps_nan
        self._waiting: list[bytes] = []
        self._whole: int | None = None
        """Bytes of the file that are whole lines; None before the first look."""

    def write(self, values: Mapping[str, Any]) -> None:
        """Append a line."""
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
        """The file's length in bytes, once all lines are on the disk.

        Raises:
            OSError: they cannot be written.
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
                "%s: %d bytes are whole lines, but the checkpoint knows of %d; the rest is lost",
                self.path,
                self._whole,
                position,
            )
        if self.path.exists():
            os.truncate(self.path, self._whole)
            flush(self.path)

    def read(self) -> list[dict[str, Any]]:
        """Every whole line."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # cut off when its writer was killed
            if isinstance(record, dict):
                found.append(record)
        return found

    def _append(self) -> None:
        """Write what waits, after the whole lines that are there."""
        if not self._waiting:
            return
        if self._whole is None:
            self._whole = _whole_lines(self.path)
        data = b"".join(self._waiting)
        with self.path.open("ab", buffering=0) as file:
            if file.tell() > self._whole:  # half a line, for which there was no room
                file.truncate(self._whole)
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._whole += len(data)
        self._waiting.clear()


def _whole_lines(path: Path, end: int | None = None) -> int:
    """How many of the first `end` bytes are whole lines."""
    return path.read_bytes()[:end].rfind(b"\n") + 1 if path.exists() else 0


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
