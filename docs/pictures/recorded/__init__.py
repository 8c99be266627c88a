"""What real runs printed and measured, for the pictures."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SESSION = "session.json"


def session() -> list[tuple[str, str]]:
    """The commands of `docs.pictures.record`, each with what it printed."""
    return [tuple(each) for each in json.loads((FOLDER / SESSION).read_text(encoding="utf-8"))]
