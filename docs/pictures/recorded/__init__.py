"""What real runs printed and measured, for the pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
COLUMNS = 102
"""Of the terminal."""
SESSION, ATTEMPTS, CURVES = "session.json", "attempts.json", "curves.json"


def session() -> list[tuple[str, str]]:
    """The commands of `docs.pictures.record`, each with what it printed."""
    return [tuple(each) for each in json.loads((FOLDER / SESSION).read_text(encoding="utf-8"))]


def attempts() -> dict[str, Any]:
    """What `castoff status --json` printed of the run of `docs.pictures.record`."""
    status: dict[str, Any] = json.loads((FOLDER / ATTEMPTS).read_text(encoding="utf-8"))
    return status


def curves() -> dict[str, list[list[float]]]:
    """The steps and values of each metric that `docs.pictures.measure` kept."""
    found: dict[str, list[list[float]]] = json.loads((FOLDER / CURVES).read_text(encoding="utf-8"))
    return found
