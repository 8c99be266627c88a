"""The scripts that tests import, one of a kind."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "scripts"
NAMES = sorted(path.name for path in FOLDER.iterdir())


def text_of(name: str) -> str:
    """One of them."""
    return (FOLDER / name).read_text()
