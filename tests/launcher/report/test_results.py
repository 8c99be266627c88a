"""The result of one member, from what is known of its attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.history.metrics import Metrics
from castoff.launcher.report.results import result_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus

from .made import BEGAN, attempt, facts

DAY = 86_400


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        ([], None),
        ([attempt(started=None, ended=None)], None),
        ([attempt(0), attempt(1, started=BEGAN + DAY, ended=BEGAN + DAY + 5)], 65.0),
        ([attempt(0, ended=None)], None),
        ([attempt(0), attempt(1, state="running", started=BEGAN + DAY, ended=None)], 70.0),
    ],
    ids=["not begun", "never began", "resubmitted on the next day", "nobody knows its end", "runs again"],
)
def test_how_long_a_member_took(tmp_path: Path, attempts: list[AttemptStatus], seconds: float | None) -> None:
    member = MemberStatus(0, "running", None, attempts)
    found = result_of(RunDirectory(tmp_path), facts().now, member, Metrics(), BEGAN + DAY + 10)
    assert found.seconds == seconds
