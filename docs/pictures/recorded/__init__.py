"""What real runs printed and measured, for the pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
COLUMNS = 102
"""Of the terminal."""
FILM_COLUMNS, FILM_ROWS = 100, 20
PAGES = {"light": "page-light.webp", "dark": "page-dark.webp"}
PAGE_SIZE = (860, 1060)
"""In pixels."""
SESSION, ATTEMPTS, CURVES, FILM = "session.json", "attempts.json", "curves.json", "film.json"


class Screen(NamedTuple):
    """What a terminal shows from a time on, its colours as escapes."""

    seconds: float
    lines: list[str]


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


def screens() -> list[Screen]:
    """What `docs.pictures.film` recorded."""
    return [Screen(*each) for each in json.loads((FOLDER / FILM).read_text(encoding="utf-8"))]
