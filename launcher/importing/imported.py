"""A script imported as a job: the job file's fields, and messages about the import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A part of the script that is missing in the job file, with the reason."""

    line: int
    """Line number in the script; 0 if the entry does not come from a line."""
    text: str
    """The text as it is in the script."""
    why: str

    @property
    def what(self) -> str:
        """The line number and the text, for people."""
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass
class Imported:
    """A script imported as a job."""

    fields: dict[str, Any]
    """The job file's fields, by their paths."""
    scheduler: str | None
    kept: str = ""
    """The reason why the job file contains the whole script; empty if castoff starts its ranks."""
    refused: list[Entry] = field(default_factory=list)
    """Directives that a job file cannot express."""
    left_out: list[Entry] = field(default_factory=list)
    """Directives that have no meaning in a job file."""
    surprises: list[str] = field(default_factory=list)
    """Notes about lines that look like directives but that the scheduler reads differently."""
    notes: list[str] = field(default_factory=list)
    """Notes for the reader of the job file."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Comments on fields, by their names."""


def nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Nest fields by their paths as in a job file: `launcher.args` goes into `launcher`."""
    result: dict[str, Any] = {}
    for path, text in fields.items():
        *outer, last = path.split(".")
        section = result
        for name in outer:
            section = section.setdefault(name, {})
        section[last] = text
    return result


def brief(text: str, width: int = 70) -> str:
    """A text on one line, shortened to a width."""
    words = " ".join(text.split())
    return words if len(words) <= width else f"{words[: width - 1]}…"
