"""Runs and what is known of them, made up for what is shown."""

from __future__ import annotations

from typing import Any

from castoff.launcher.history.progress import Progress
from castoff.launcher.runs.index import Entry
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus, RunSummary
from castoff.launcher.screen.listing import Item
from castoff.launcher.status.overview import Row
from castoff.launcher.text.layout import Line

NOW = 1_795_000_000.0


def item(
    id: str,
    state: str,
    *,
    ago: float = 60,
    progress: Progress | None = None,
    left: float | None = None,
    silent: float | None = None,
    **more: Any,
) -> Item:
    """A run that was submitted so many seconds ago; `left`: of its walltime; `silent`: for so long."""
    entry = Entry(f"/runs/{id}", id.partition("-")[0], NOW - ago)
    summary = RunSummary(**{"name": entry.name, "state": state, "members": 1, "submitted": NOW - ago, **more})
    deadline, since = None if left is None else NOW + left, None if silent is None else NOW - silent
    return Item(Row(entry, summary), progress, deadline, since)


def attempt(number: int = 0, state: str = "running", **more: Any) -> AttemptStatus:
    facts = {"ending": None, "code": None, "reason": None, "host": "n1", "started": NOW - 60, "ended": None}
    return AttemptStatus(
        **{"attempt": number, "state": state, "failure": None, "logs": "/x", **facts, **more}
    )


def run_status(members: list[MemberStatus], **more: Any) -> RunStatus:
    facts: dict[str, Any] = {
        "id": "train-20261128-101500-1f2e",
        "name": "train",
        "site": "big",
        "scheduler": "slurm",
        "job": "7",
        "directory": "/runs/train-20261128-101500-1f2e",
        "state": "running",
        "final": False,
        "submitted": NOW - 90,
        "walltime": None,
        "members": members,
    }
    return RunStatus(**{**facts, **more})


def texts(lines: list[Line]) -> list[str]:
    """Lines as they are read."""
    return ["".join(span.text for span in line).rstrip() for line in lines]
