"""Members of a job of PBS that they share, and of the copies that run what it left."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import status

from ..fake_pbs import FakePbs, OnPbs

RUNNING = {"job_state": "R"}
QUEUED = {"job_state": "Q", "comment": "Not Running: no nodes"}
OVER = {"job_state": "F", "substate": "92", "Exit_status": "0"}


class Shared(OnPbs):
    """Three members that share job 7.head."""

    def __init__(self, folder: Path):
        send = {"job": "7.head", "members": [0, 1, 2], "one_job": True, "time": 899.0}
        super().__init__(folder, job="7.head", sends=[send])
        sharing = {"members": 3, "at_once": 1, "per_node": 1, "nodes": 1}
        plan = {"name": "made", "site": "big", "scheduler": "pbs", "array_count": 3, "sharing": sharing}
        self.write("plan.json", plan | {"requeue_how": "copy", "requeue_max": 3, "walltime": 600})

    def leaves(self, job: str, members: list[int], **records: str) -> None:
        """A job leaves members to a copy of itself, which the records name."""
        folder = self.run.path / "attempts" / f".shared-{job}.0"
        folder.mkdir()
        (folder / "left").write_text("".join(f"{member} 0\n" for member in members))
        for name, copy in records.items():
            (folder / f"{name}.json").write_text(json.dumps({"job": copy}))


@pytest.fixture
def pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePbs:
    return FakePbs(tmp_path, monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def members(made: Shared) -> list[tuple[Any, ...]]:
    return [(one.state, one.ending, one.reason) for one in status(made.run).members]


def test_those_that_have_not_begun_wait_for_their_turn(pbs: FakePbs, made: Shared) -> None:
    made.attempt("0.0")
    pbs.tells({"7.head": RUNNING}, made.run)
    waits = ("pending", None, "it waits for its turn in job 7.head")
    assert members(made) == [("running", None, None), waits, waits]


def test_those_that_were_left_wait_in_the_copy(pbs: FakePbs, made: Shared) -> None:
    made.attempt("0.0", "done")
    made.attempt("1.0", "resume")
    made.leaves("7.head", [1, 2], next="8.head")
    pbs.tells({"8.head": QUEUED}, made.run)
    found = members(made)
    assert found[0] == ("ended", "done", None)
    assert [one[:2] for one in found[1:]] == [("pending", None)] * 2 and found[1][2] == found[2][2]
    assert RunRecords(made.run).jobs >= {"8.head"}
    pbs.tells({"8.head": RUNNING}, made.run)
    assert members(made)[2] == ("pending", None, "it waits for its turn in job 8.head")
    assert members(made)[1][0] == "pending"


def test_of_two_copies_the_one_that_has_begun_counts(pbs: FakePbs, made: Shared) -> None:
    made.attempt("0.0", "done")
    made.attempt("1.0", "done", job="9.head")
    made.leaves("7.head", [1, 2], next="8.head", follower="9.head")
    pbs.tells({"8.head": OVER, "9.head": RUNNING}, made.run)
    assert members(made)[1:] == [
        ("ended", "done", None),
        ("pending", None, "it waits for its turn in job 9.head"),
    ]


def test_a_copy_leaves_what_it_was_left(pbs: FakePbs, made: Shared) -> None:
    """Of a member that began in the first job, and of one that never did."""
    made.attempt("0.0", "resume")
    made.attempt("1.0", "done", job="8.head")
    made.leaves("7.head", [0, 1, 2], next="8.head")
    made.leaves("8.head", [2, 0], next="9.head")
    pbs.tells({"9.head": QUEUED}, made.run)
    assert [one[0] for one in members(made)] == ["pending", "ended", "pending"]
    made.attempt("2.0", job="9.head")
    pbs.tells({"9.head": RUNNING}, made.run)
    assert [one[0] for one in members(made)] == ["pending", "ended", "running"]


def test_a_copy_that_is_gone_is_no_reason_to_wait(pbs: FakePbs, made: Shared) -> None:
    made.attempt("0.0", "resume")
    made.leaves("7.head", [0, 1, 2], next="8.head")
    made.write("cancelled.json", {"jobs": {"8.head": 1005.0}})
    pbs.tells({}, made.run)
    assert [one[:2] for one in members(made)] == [("ended", "cancelled")] * 3


def test_damaged_records_are_no_loop(pbs: FakePbs, made: Shared) -> None:
    made.leaves("7.head", [0], next="8.head")
    made.leaves("8.head", [0], next="7.head")
    (made.run.path / "attempts" / ".shared-9.head.0").mkdir()
    pbs.tells({"8.head": RUNNING}, made.run)
    assert RunRecords(made.run).newest_job(0, "7.head") == "8.head"


def test_a_job_that_is_started_again_takes_up_what_ended_with_it(pbs: FakePbs, made: Shared) -> None:
    """One was cancelled with it, one alone, one before it began."""
    made.attempt("0.0", "cancelled")
    made.attempt("1.0", "cancelled")
    made.write("cancel-1", {})
    made.attempt("2.0", "cancelled")
    (made.run.path / "attempts" / "2.0" / "start.json").unlink()
    pbs.tells({"7.head": {"job_state": "E"}}, made.run)
    assert [one[0] for one in members(made)] == ["running", "ended", "pending"]
    pbs.tells({"7.head": QUEUED}, made.run)
    assert [one[0] for one in members(made)] == ["pending", "ended", "pending"]
    pbs.tells({"7.head": RUNNING | {"stime": "Mon Nov 23 10:00:00 2026"}}, made.run)
    waits = ("pending", None, "it waits for its turn in job 7.head")
    assert members(made) == [waits, ("ended", "cancelled", None), waits]


@pytest.mark.parametrize(
    ("began", "over", "ending"),
    [(420, 1022, "failed"), (405, 1012, "walltime"), (900, 1015, "walltime")],
    ids=["before the walltime", "with the job", "its limit was lowered"],
)
def test_what_was_killed_before_the_walltime_failed(
    pbs: FakePbs, made: Shared, began: int, over: int, ending: str
) -> None:
    """By its own doing: the walltime was 600 s, and the member ended at 1010."""
    made.attempt("0.0", "failed", 137)
    for member in (1, 2):
        made.attempt(f"{member}.0", "done")
    times = {"stime": time.ctime(began), "obittime": time.ctime(over)}
    pbs.tells({"7.head": OVER | {"Exit_status": "-29"} | times}, made.run)
    assert [one[1] for one in members(made)] == [ending, "done", "done"]


@pytest.mark.parametrize(("asked", "ending"), [(1012, "cancelled"), (1014, "failed")])
def test_what_was_killed_before_the_job_was_cancelled_failed(
    pbs: FakePbs, made: Shared, asked: int, ending: str
) -> None:
    """The clocks of the hosts may differ by 3 s."""
    made.attempt("0.0", "failed", 137)
    for member in (1, 2):
        made.attempt(f"{member}.0", "done")
    made.write("cancelled.json", {"jobs": {"7.head": asked}})
    pbs.tells({}, made.run)
    assert [one[1] for one in members(made)] == [ending, "done", "done"]
