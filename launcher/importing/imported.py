"""A script as a job: fields of a job file, and what became of each line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from launcher.importing.account import Account

PLACEHOLDER = ["name-your-program"]
"""The command of a script that starts nothing."""


@dataclass
class Imported:
    """A script as a job."""

    fields: dict[str, Any]
    """Of the job file."""
    account: Account
    scheduler: str | None
    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader of the job file should know of a field."""
    profile: dict[str, str] = field(default_factory=dict)
    """Lines for the site's profile, each with where it is from."""

    def note(self, field_name: str, text: str) -> None:
        """Say something of a field, or of the whole where its name is empty; once."""
        found = self.notes.setdefault(field_name, [])
        if text not in found:
            found.append(text)


def nested(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields by their paths as a job file has them: `launcher.args` within `launcher`."""
    found: dict[str, Any] = {}
    for path, text in sorted(fields.items(), key=lambda one: one[0] == "launcher.args"):
        *outer, last = path.split(".")
        place = found
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = text
    return found
