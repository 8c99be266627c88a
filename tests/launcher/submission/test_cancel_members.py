"""Ending single members of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.submission.cancel_members import end_members
from tests.patience import until

from ..conftest import LocalJobs
from ..fake_slurm import FakeSlurm, OnSlurm

PENDING = "7|0|PENDING|Resources|899|N/A|N/A|{script}\n7|1|RUNNING|None|900|N/A|N/A|{script}\n"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


def shared(folder: Path) -> OnSlurm:
    """Three members that share job 7, one after the other."""
    send = {"job": "7", "members": [0, 1, 2], "one_job": True, "time": 899.0}
    made = OnSlurm(folder, members=3, sends=[send])
    plan = json.loads((made.run.path / "plan.json").read_text())
    made.write("plan.json", plan | {"sharing": {"members": 3, "at_once": 1, "per_node": 1, "nodes": 1}})
    return made


def test_others_go_on(jobs: LocalJobs) -> None:
    run = jobs.submit("--set", "array.count=2", "--name", "two", sh="sleep 600")
    until(lambda: jobs.status(run)["state"] == "running", "the run")
    answer = jobs.castoff("cancel", f"{run.id}:1")
    assert (answer.returncode, answer.stdout) == (0, f"{run.id}:1: cancelled\n")
    assert [member["state"] for member in jobs.status(run)["members"]] == ["running", "ended"]
    answer = jobs.castoff("cancel", f"{run.id}:0-1", "--json")
    assert [json.loads(line)["member"] for line in answer.stdout.splitlines()] == [0, 1]
    answer = jobs.castoff("cancel", f"{run.id}:7")
    assert answer.returncode == 1 and "no member 7; members are 0 to 1" in answer.stderr


def test_a_job_of_its_own_is_cancelled_by_its_scheduler(slurm: FakeSlurm, tmp_path: Path) -> None:
    made = OnSlurm(tmp_path, members=2)
    slurm.queue.write_text(PENDING.format(script=made.run.script))
    left = slurm.folder / "left"
    left.write_text(PENDING.format(script=made.run.script).splitlines(keepends=True)[0])
    slurm.program("scancel", f"cp {left} {slurm.queue}")
    slurm.history.write_text(f"7_1|CANCELLED by 0|0:15|905|906|990|sbatch {made.run.script}\n")
    now = end_members(made.run, [1])
    assert [member.word for member in now.members] == ["pending", "cancelled"]
    assert "scancel 7_1" in slurm.asked.read_text()


def test_a_shared_job_goes_on_without_a_member_that_has_not_begun(slurm: FakeSlurm, tmp_path: Path) -> None:
    made = shared(tmp_path)
    made.attempt("0.0")
    slurm.queue.write_text(f"7|N/A|RUNNING|None|900|N/A|N/A|{made.run.script}\n")
    now = end_members(made.run, [2])
    assert [member.word for member in now.members] == ["running", "pending", "cancelled"]
    assert (made.run.path / "cancel-2").exists()  # the dispatcher looks for it before it starts a member
    ending = json.loads((made.run.path / "attempts/2.0/ending.json").read_text())
    assert (ending["ending"], ending["reason"]) == ("cancelled", "cancelled before it began")


def test_a_member_that_does_not_end_is_named(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = shared(tmp_path)
    made.attempt("0.0")
    slurm.queue.write_text(f"7|N/A|RUNNING|None|900|N/A|N/A|{made.run.script}\n")
    monkeypatch.setattr("castoff.launcher.submission.cancel_members._PATIENCE", 0.0)
    with pytest.raises(CastoffError, match="members 0 have not ended after 0 s"):
        end_members(made.run, [0])
    assert (made.run.path / "cancel-0").exists() and not (made.run.path / "attempts/0.1").exists()
