"""Ranks that ended well long before the others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from castoff.launcher.history.attempts import early_ranks, early_words
from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus

NOW = float(int(time.time()))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "plan.json").write_text('{"ranks": 4}')
    (tmp_path / "attempts/0.0/ended").mkdir(parents=True)
    return RunDirectory(tmp_path)


def ends(run: RunDirectory, rank: int, after: float) -> None:
    path = run.path / "attempts/0.0/ended" / str(rank)
    path.touch()
    os.utime(path, (0, NOW - 100 + after))


def attempt(
    run: RunDirectory, ending: str | None = None, took: float = 100, failure: Failure | None = None
) -> AttemptStatus:
    ended = None if ending is None else NOW - 100 + took
    state = "running" if ending is None else "ended"
    logs = str(run.path / "logs/0.0")
    return AttemptStatus(0, state, ending, None, None, "n1", NOW - 100, ended, failure, logs)


def words(run: RunDirectory, attempt: AttemptStatus) -> str | None:
    return early_words(early_ranks(run, attempt), attempt)


def test_while_others_run(run: RunDirectory) -> None:
    assert words(run, attempt(run)) is None
    ends(run, 1, 3)
    assert words(run, attempt(run)) == "rank 1 ended well after 3 s, while others still run"
    ends(run, 2, 8)
    assert words(run, attempt(run)) == "ranks 1-2 ended well after 3 to 8 s, while others still run"
    assert words(run, attempt(run, "walltime")) == "ranks 1-2 ended well after 3 to 8 s, while others ran on"


def test_before_a_failure(run: RunDirectory) -> None:
    """As where the others then miss it in a collective."""
    record = run.path / "attempts/0.0/failure.json"
    record.touch()
    os.utime(record, (0, NOW - 100 + 5))
    ends(run, 1, 4.2)
    ends(run, 2, 5.5)  # it was asked to end
    failed = attempt(run, "failed", took=6, failure=Failure(1, 0, "n1"))
    assert words(run, failed) == "rank 1 ended well after 4 s, before the first failure"


def test_of_many_ranks_each_host_has_a_file(run: RunDirectory) -> None:
    (run.path / "plan.json").write_text('{"ranks": 512, "layout": [[256, 2]]}')
    began, folder = int(NOW) - 100, run.path / "attempts/0.0/ended"
    ends(run, 0, 50)  # rank 0 has both
    (folder / "ranks-0").write_text(f"0 {began + 4}\n7 {began + 9}\n")
    (folder / "all-1").write_text("".join(f"{rank} {began + 6}\n" for rank in range(256, 512)))
    (folder / "failed-0").mkdir()
    early = "ranks 0,7,256-511 ended well after"
    assert words(run, attempt(run)) == f"{early} 4 to 9 s, while others still run"
    failed = attempt(run, "failed", failure=Failure(1, 0, "n1", time=began + 6))
    assert words(run, failed) == "rank 0 ended well after 4 s, before the first failure"
    everyone = "".join(f"{rank} {began + 4}\n" for rank in range(256))
    (folder / "ranks-0").write_text(everyone)
    assert words(run, attempt(run)) is None


def test_where_nothing_is_amiss(run: RunDirectory) -> None:
    ends(run, 1, 3)
    assert words(run, attempt(run, "done")) is None
    assert words(run, attempt(run, "walltime", took=9)) is None  # in its last moments
    assert words(run, attempt(run, "failed", failure=Failure(1, 0, "n1", reason="hang"))) is None
    for rank in (0, 2, 3):
        ends(run, rank, 5)
    assert words(run, attempt(run)) is None  # all have, and teardown runs
    (run.path / "plan.json").write_text('{"ranks": 512, "layout": [[128, 4]]}')
    assert words(run, attempt(run)) is None  # the first of each node has
