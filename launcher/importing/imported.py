"""A script as a job: fields of a job file, and what is to be said of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """Something in a script that the job file does not hold."""

    line: int
    """0: what no line says."""
    text: str
    """As the script has it."""
    why: str

    @property
    def what(self) -> str:
        """Its line and its text for people."""
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass
class Imported:
    """A script as a job."""

    fields: dict[str, Any]
    """Of the job file, by their paths."""
    scheduler: str | None
    kept: str = ""
    """Why the script is kept whole; empty: castoff starts its ranks."""
    refused: list[Entry] = field(default_factory=list)
    """What no job file says."""
    left_out: list[Entry] = field(default_factory=list)
    """What has no meaning in a job file."""
    surprises: list[str] = field(default_factory=list)
    """Notes about lines that its scheduler reads otherwise than they look."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the job file should know."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Of a field."""


def nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields by their paths as a job file has them: `launcher.args` within `launcher`."""
    found: dict[str, Any] = {}
    for path, text in fields.items():
        *outer, last = path.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = text
    return found


def brief(text: str, width: int = 70) -> str:
    """Text on one line, cut short."""
    words = " ".join(text.split())
    return words if len(words) <= width else f"{words[: width - 1]}…"
