"""Run directories that are moved or deleted, while they wait, while they run and afterwards; wrong clocks."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.process.locks import is_locked
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import LOCK, RunDirectory
from tests.records import submission_of

from ..conftest import LocalJobs

Until = Callable[..., None]
WAIT = (
    "touch here.$CASTOFF_ARRAY_INDEX; while [ ! -e go ]; do sleep 0.05; done; echo $CASTOFF_RUN_DIR >>ran; "
)


def scheduler_log(run: RunDirectory) -> str:
    return (run.log_folder / "scheduler.log").read_text()


@pytest.mark.parametrize(("code", "ending"), [(0, "done"), (5, "failed")])
def test_moved_while_it_runs(jobs: LocalJobs, until: Until, code: int, ending: str) -> None:
    """What runs was told the old place and can write nothing there; what comes after is told the new."""
    run = jobs.submit("--set", "array={count: 2, max_concurrent: 1}", sh=f"{WAIT}exit {code}")
    until((jobs.folder / "here.0").exists)
    moved = RunDirectory(run.path.rename(jobs.folder / "moved"))
    until(lambda: f"{run.path} was moved to {moved.path}" in scheduler_log(moved))
    assert jobs.status(moved)["state"] == "running"
    (jobs.folder / "go").touch()
    reported = jobs.wait(moved)
    assert [member["ending"] for member in reported["members"]] == [ending, ending]
    assert reported["code"] == code
    assert (jobs.folder / "ran").read_text().split() == [str(run.path), str(moved.path)]
    until(lambda: not is_locked(moved.path / LOCK))
    assert not run.path.exists() and jobs.nothing_left(run) and jobs.nothing_left(moved)


def test_cancelled_where_it_was_moved_to(jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit(sh=WAIT)
    until((jobs.folder / "here.0").exists)
    moved = run.path.rename(jobs.folder / "moved")
    answer = jobs.castoff("cancel", moved)
    assert answer.stdout == "moved: ended, cancelled\n", answer.stderr
    assert jobs.nothing_left(run)


def test_deleted_while_it_runs(jobs: LocalJobs, until: Until) -> None:
    """The scheduler ends what runs, and itself."""
    run = jobs.submit("--ranks-per-node", "2", "--set", "array.count=2", sh=WAIT)
    until(lambda: any(jobs.folder.glob("here.*")))
    scheduler = jobs.scheduler(run)
    shutil.rmtree(run.path)
    until(lambda: not scheduler.is_running() and jobs.nothing_left(run))
    assert not run.path.exists()
    answer = jobs.castoff("status", run.id)
    assert answer.returncode == 1 and "its directory" in answer.stderr and "is gone" in answer.stderr


def test_deleted_while_it_waits(jobs: LocalJobs, until: Until) -> None:
    jobs.submit("--name", "first", sh=WAIT)
    run = jobs.submit("--set", "after.afterok=[first]", sh="touch then")
    scheduler = jobs.scheduler(run)
    shutil.rmtree(run.path)
    until(lambda: not scheduler.is_running() and jobs.nothing_left(run))
    assert not (jobs.folder / "then").exists() and not run.path.exists()


def test_what_a_run_waits_for_is_moved(jobs: LocalJobs, until: Until) -> None:
    first = jobs.submit("--name", "first", sh=WAIT)
    then = jobs.submit("--set", "after.afterok=[first]", sh="touch then")
    until((jobs.folder / "here.0").exists)
    first.path.rename(jobs.folder / "moved")
    (jobs.folder / "go").touch()
    reported = jobs.wait(then)
    reason = reported["members"][0]["attempts"][0]["reason"]
    assert reported["ending"] == "cancelled" and reason == f"afterok of {first.id} cannot hold any more"


def test_the_script_is_gone(jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit("--set", "array={count: 2, max_concurrent: 1}", sh=WAIT)
    until((jobs.folder / "here.0").exists)
    run.script.unlink()
    (jobs.folder / "go").touch()
    reported = jobs.wait(run)
    assert [member["ending"] for member in reported["members"]] == ["done", "failed"]
    assert "No such file" in run.script_log(1).read_text()


class TestClock:
    """Set back between two commands."""

    def test_the_newest_run_is_the_last_one_submitted(
        self, jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = jobs.submit("--name", "job", sh="true")
        past = time.time() - 86400
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(past))
        with monkeypatch.context() as patch:
            patch.setattr(time, "strftime", lambda *_: stamp)
            patch.setattr(time, "time", lambda: past)
            second = jobs.submit("--name", "job", sh="true")
        assert second.id < first.id and (submission_of(second).time or 0) < (submission_of(first).time or 0)
        assert Index.of(os.environ).find("job").path == second.path

    def test_no_time_is_negative(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "job", sh="true")
        jobs.wait(run)
        start = run.path / "attempts" / "0.0" / "start.json"
        record = json.loads(start.read_text())
        start.write_text(json.dumps({**record, "time": record["time"] + 86400}))
        assert "done after 0s, began " in jobs.castoff("status", "job").stdout

    def test_attempts_follow_their_numbers(self, jobs: LocalJobs, tmp_path: Path) -> None:
        run = jobs.submit("--name", "job", sh="[ $CASTOFF_ATTEMPT = 1 ]")
        assert jobs.wait(run)["ending"] == "failed"
        start = run.path / "attempts" / "0.0" / "start.json"
        record = json.loads(start.read_text())
        start.write_text(json.dumps({**record, "time": record["time"] + 86400}))
        assert jobs.castoff("resubmit", "job").returncode == 0
        reported = jobs.wait(run)
        assert reported["ending"] == "done"
        assert [attempt["ending"] for attempt in reported["members"][0]["attempts"]] == ["failed", "done"]
