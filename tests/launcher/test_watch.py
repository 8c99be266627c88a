"""What the records of a run mean, from directories made by hand."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.local.control import LOCK, SUBMITTING
from launcher.runs import Run, locked
from launcher.watch import condition_holds, failure_words, status, wait


class Made:
    """A run directory in some state."""

    def __init__(self, folder: Path, members: int = 1, **submission: Any):
        self.run = Run(folder / "run")
        (self.run.path / "attempts").mkdir(parents=True)
        plan = {"name": "made", "site": "local", "scheduler": "local"}
        self.write("plan.json", {**plan, "array_count": members if members > 1 else None})
        self.write("submission.json", {"job": "local-1", **submission})

    def write(self, name: str, record: Any) -> None:
        (self.run.path / name).write_text(json.dumps(record))

    def attempt(self, name: str, ending: str | None = None, code: int = 0, *, settled: bool = True) -> None:
        folder = self.run.path / "attempts" / name
        folder.mkdir()
        self.write(f"attempts/{name}/start.json", {"job": "x", "host": "here", "time": 1000})
        if ending is not None:
            self.write(f"attempts/{name}/ending.json", {"ending": ending, "code": code, "time": 1010})
        if ending is not None and settled:
            (folder / "settled").touch()

    @contextlib.contextmanager
    def alive(self, name: str = LOCK) -> Iterator[None]:
        with locked(self.run.path / name):
            yield


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_pending_then_unknown(made: Made) -> None:
    for name in (LOCK, SUBMITTING):
        with made.alive(name):
            now = status(made.run)
            assert (now.state, now.ending, now.code, now.reason) == ("pending", None, None, None)
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("unknown", "unknown", None)
    assert now.reason is not None and "castoff does not guess" in now.reason


def test_killed_while_it_was_submitted(tmp_path: Path) -> None:
    now = status(Made(tmp_path, job=None).run)
    assert now.state == "unknown"
    assert now.reason == "`castoff submit` was killed before its scheduler answered"


def test_on_another_host(made: Made) -> None:
    made.write("local.json", {"pid": 1, "host": "login7"})
    assert status(made.run).reason == "its scheduler runs, or ran, on login7: ask there"


def test_an_ending_counts_when_its_scheduler_has_seen_it(made: Made) -> None:
    made.attempt("0.0", "done", settled=False)
    with made.alive():
        assert status(made.run).state == "running"
        assert condition_holds("afterok", made.run) is None
        (made.run.path / "attempts" / "0.0" / "settled").touch()
        assert status(made.run).ending == "done"
    (made.run.path / "attempts" / "0.0" / "settled").unlink()
    assert status(made.run).ending == "done"


def test_between_two_attempts(made: Made) -> None:
    made.attempt("0.0", "again")
    with made.alive():
        assert status(made.run).state == "pending"
        made.attempt("0.1")
        assert status(made.run).state == "running"
    assert status(made.run).state == "unknown"


@pytest.mark.parametrize(
    ("endings", "worst", "code"),
    [
        ([("done", 0), ("failed", 3), ("walltime", 143)], "failed", 3),
        ([("done", 0), ("cancelled", 143), ("done", 0)], "cancelled", 143),
        ([("walltime", 75), ("cancelled", 143)], "walltime", 75),
        ([("done", 0), ("done", 0)], "done", 0),
        ([("done", 0), ("no word of ours", 1)], "unknown", 1),
    ],
)
def test_a_run_ends_as_its_worst_member(
    tmp_path: Path, endings: list[tuple[str, int]], worst: str, code: int
) -> None:
    made = Made(tmp_path, members=len(endings))
    for number, (ending, of) in enumerate(endings):
        made.attempt(f"{number}.0", ending, of)
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("ended", worst, code)


def test_members_in_every_state(tmp_path: Path) -> None:
    made = Made(tmp_path, members=3)
    made.attempt("0.0", "done")
    with made.alive():
        assert status(made.run).state == "running"
        assert [member.state for member in status(made.run).members] == ["ended", "pending", "pending"]
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("unknown", "unknown", None)


def test_the_tenth_attempt_comes_after_the_ninth(made: Made) -> None:
    for number in (10, 9, 2):
        made.attempt(f"0.{number}", "done" if number == 10 else "again")
    now = status(made.run)
    assert [attempt.attempt for attempt in now.members[0].attempts] == [2, 9, 10]
    assert now.ending == "done"


def test_what_else_lies_there(made: Made) -> None:
    made.attempt("0.0", "done")
    for name in ("x.y", "0.-1", ".0.0", "1.²", "0.0.swp"):
        (made.run.path / "attempts" / name).touch()
    assert len(status(made.run).members) == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"rank": 3, "host": "n1", "code": 9, "signal": None}, "rank 3 on n1 failed first: exit code 9"),
        (
            {"rank": 0, "host": "n1", "code": 137, "signal": "SIGKILL"},
            "rank 0 on n1 failed first: killed by SIGKILL",
        ),
        ({"rank": None, "host": "n1", "code": 1}, "a rank on n1 failed first: exit code 1"),
    ],
)
def test_the_first_failure(made: Made, record: dict[str, Any], words: str) -> None:
    made.attempt("0.0", "failed", 9)
    made.write("attempts/0.0/failure.json", record)
    failure = status(made.run).members[0].attempts[0].failure
    assert failure is not None and failure_words(failure) == words


def test_a_dependency_on_what_is_gone(tmp_path: Path) -> None:
    gone = Run(tmp_path / "gone")
    assert condition_holds("afterok", gone) is False
    assert condition_holds("afterany", gone) is True


def test_waiting_has_an_end(made: Made) -> None:
    with made.alive():
        assert wait(made.run, timeout=0.1).state == "pending"
    assert wait(made.run).over
