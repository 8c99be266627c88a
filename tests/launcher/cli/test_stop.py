"""castoff stop: a program that looks saves and ends, what waits does not begin, and nothing comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory, request_stop

from ..conftest import Castoff, LocalJobs

Until = Callable[..., None]

CAREFUL = (
    'touch here.$CASTOFF_ARRAY_INDEX; while [ ! -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; '
    'echo {outcome} >"$CASTOFF_OUTCOME_FILE"'
)
AGAIN, DONE = CAREFUL.format(outcome="resume"), CAREFUL.format(outcome="done")
HEEDLESS = "touch here.$CASTOFF_ARRAY_INDEX; while [ ! -e go ]; do sleep 0.05; done"


def endings(reported: dict[str, Any]) -> list[list[tuple[str, int]]]:
    """(ending, code) of each member's attempts."""
    return [[(one["ending"], one["code"]) for one in member["attempts"]] for member in reported["members"]]


@pytest.mark.everyday("*")
@pytest.mark.parametrize("requeue", [0, 3])
def test_a_program_that_looks(castoff: Castoff, jobs: LocalJobs, until: Until, requeue: int) -> None:
    run = jobs.submit("--name", "careful", "--set", f"requeue.max={requeue}", sh=AGAIN)
    then = jobs.submit("--set", "after.afterok=[careful]", sh="touch then")
    until((jobs.folder / "here.0").exists)
    answer = castoff("stop", "careful", "--wait")
    assert (answer.returncode, answer.stdout) == (0, f"{run.id}: asked to stop; ended, resume\n")
    assert endings(jobs.wait(run)) == [[("resume", 75)]]
    assert castoff("wait", run.path).returncode == 75
    assert jobs.wait(then)["ending"] == "cancelled" and not (jobs.folder / "then").exists()


def test_one_that_has_finished_is_done(castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit(sh=DONE)
    until((jobs.folder / "here.0").exists)
    assert castoff("stop", run.path, "--wait").stdout == f"{run.id}: asked to stop; ended, done\n"
    assert endings(jobs.wait(run)) == [[("done", 0)]]


def test_members_that_wait_do_not_begin(castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit("--set", "array={count: 3, max_concurrent: 1}", "--set", "requeue.max=1", sh=AGAIN)
    until((jobs.folder / "here.0").exists)
    castoff("stop", run.path)
    reported = jobs.wait(run)
    assert endings(reported) == [[("resume", 75)], [("cancelled", 143)], [("cancelled", 143)]]
    assert reported["members"][1]["attempts"][0]["reason"] == "stopped before it began"
    assert [path.name for path in jobs.folder.glob("here.*")] == ["here.0"]


def test_one_that_waits_for_others(castoff: Castoff, jobs: LocalJobs) -> None:
    jobs.submit("--name", "first", sh=HEEDLESS)
    run = jobs.submit("--set", "after.afterok=[first]", sh="touch then")
    assert castoff("stop", run.path, "--wait").stdout == f"{run.id}: asked to stop; ended, cancelled\n"
    assert endings(jobs.wait(run)) == [[("cancelled", 143)]]
    assert jobs.wait(run)["members"][0]["attempts"][0]["reason"] == "stopped before it began"


def test_between_a_requeue_and_its_start(jobs: LocalJobs) -> None:
    """Somebody stops it when the script has just asked to be started again."""
    blocks = jobs.folder / "own" / "blocks"
    blocks.mkdir(parents=True)
    (blocks / "ending.sh").write_text(
        "castoff_end() {\ncastoff_record_ending again 0\ncastoff_scheduler_requeue\n"
        ': >"$CASTOFF_RUN_DIR/stop"\n'
        "castoff_ending=resume\nexit 0\n}\n"
    )
    run = jobs.submit("--set", "requeue.max=3", "--set", "templates=own", sh="echo here")
    assert endings(jobs.wait(run)) == [[("resume", 75)]]
    assert jobs.log(run) == "[0] here"


def test_a_program_that_does_not_look(castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit(sh=HEEDLESS)
    until((jobs.folder / "here.0").exists)
    answer = castoff("stop", run.path)
    assert (answer.returncode, answer.stdout) == (0, f"{run.id}: asked to stop; running\n")
    assert answer.stderr == (
        "castoff: a program that does not check CASTOFF_STOP_FILE keeps running; `castoff cancel` ends it\n"
    )
    late = castoff("stop", run.path, "--timeout", "0.2")
    assert late.returncode == 124 and f"{run.id}: not over after 0.2 s; its program may not" in late.stderr
    assert castoff("cancel", run.path).stdout == f"{run.id}: ended, cancelled\n"


def test_one_that_ends_well_without_a_word(jobs: LocalJobs, until: Until) -> None:
    run = jobs.submit("--set", "requeue.max=1", sh=HEEDLESS)
    until((jobs.folder / "here.0").exists)
    request_stop(run)
    (jobs.folder / "go").touch()
    assert endings(jobs.wait(run)) == [[("done", 0)]]


def test_what_is_over_is_left_alone(castoff: Castoff, jobs: LocalJobs) -> None:
    run = jobs.submit(sh="exit 3")
    jobs.wait(run)
    answer = castoff("stop", run.path, "--json")
    assert answer.returncode == 0 and answer.stderr == ""
    assert json.loads(answer.stdout) == {"id": run.id, "asked": False, "state": "ended", "ending": "failed"}
    assert castoff("stop", run.path, "--wait").stdout == f"{run.id}: ended already, failed\n"
    assert not (run.path / "stop").exists() and not (run.path / "attempts" / "0.0" / "stop").exists()


def test_several_or_none(castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
    runs = [jobs.submit("--name", name, sh=AGAIN) for name in ("a", "b")]
    for run in runs:
        until((run.log_folder / "0.0" / "rank-00000.log").exists)
    wrong = castoff("stop", "a", "nothing")
    assert wrong.returncode == 1 and "nothing: no such run" in wrong.stderr
    assert not (runs[0].path / "stop").exists()
    answer = castoff("stop", "a", "b", "--timeout", "60")
    assert answer.stdout.splitlines() == [f"{run.id}: asked to stop; ended, resume" for run in runs]


@pytest.mark.parametrize("scheduler", ["slurm", "pbs", ""])
@pytest.mark.parametrize(("ending", "asked"), [("resume", True), (None, True), ("done", False)])
def test_under_other_schedulers(
    castoff: Castoff, jobs: LocalJobs, scheduler: str, ending: str | None, asked: bool
) -> None:
    """Only files say so. One that asked to be started again may be waiting to be."""
    run = RunDirectory(jobs.folder / "castoff-12")
    attempt = run.path / "attempts" / "0.0"
    attempt.mkdir(parents=True)
    run.script.write_text("#!/bin/bash\n")
    if scheduler:
        (run.path / "plan.json").write_text(json.dumps({"scheduler": scheduler}))
    if ending:
        (attempt / "ending.json").write_text(json.dumps({"ending": ending, "code": 0}))
    assert castoff("stop", "castoff-12").returncode == 0
    assert (run.path / "stop").exists() == asked
    assert (attempt / "stop").exists() == (ending is None)


def test_a_stop_that_cannot_be_recorded_is_reported(jobs: LocalJobs) -> None:
    with pytest.raises(CastoffError, match="gone: cannot be written; gone is still active: No such file"):
        request_stop(RunDirectory(jobs.folder / "gone"))
