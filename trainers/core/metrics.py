"""The record of a run: one JSON line per report, written by rank 0 as it happens."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class MetricsFile:
    """`metrics.jsonl`: whole lines, kept up to the step that a run goes on from."""

    def __init__(self, path: Path):
        self.path = path

    def go_on_from(self, step: int) -> None:
        """Drop what an attempt that was killed wrote after its last checkpoint, and half lines."""
        if not self.path.exists():
            return
        kept = [line for line in _records(self.path) if line.get("step", 0) <= step]
        draft = self.path.with_name(f".{self.path.name}")
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Append a line; numbers that JSON does not have (nan, inf) become null."""
        line = {name: _finite(value) for name, value in values.items()}
        line["time"] = round(time.time(), 3)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Every whole line."""
        return _records(self.path) if self.path.exists() else []


def _records(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # cut off when its writer was killed
        if isinstance(record, dict):
            found.append(record)
    return found


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
