"""castoff resubmit: the next attempts, in the same directory, of what is not done."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from tests.records import submission_of

from ..conftest import Castoff, LocalJobs

Until = Callable[..., None]

SECOND = "echo $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT >>ran; [ $CASTOFF_ATTEMPT -gt 0 ]"
"""Fails at first."""


def endings(reported: dict[str, Any]) -> list[list[str]]:
    return [[one["ending"] for one in member["attempts"]] for member in reported["members"]]


def again(jobs: LocalJobs, run: RunDirectory, *words: str, code: int = 0, **env: str | None) -> str:
    """What `castoff resubmit` says."""
    answer = jobs.castoff("resubmit", run.path, *words, env=env)
    assert answer.returncode == code, answer.stderr
    return answer.stderr if code else answer.stdout


def ran(jobs: LocalJobs) -> list[str]:
    return (jobs.folder / "ran").read_text().split()


class TestGoingOn:
    def test_the_next_attempt_in_the_same_directory(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "mine", sh=SECOND)
        assert jobs.wait(run)["ending"] == "failed"
        first = submission_of(run)
        reported = json.loads(again(jobs, run, "--json"))
        expected: dict[str, Any] = {
            "id": run.id,
            "job": run.job,
            "directory": str(run.path),
            "attempts": {"0": 1},
            "excluded": [],
        }
        assert reported == expected
        assert run.job != first.job
        now = jobs.wait(run)
        assert (now["ending"], now["code"], endings(now)) == ("done", 0, [["failed", "done"]])
        assert ran(jobs) == ["0.0", "0.1"]
        record = submission_of(run)
        assert record.earlier == [first]
        assert (record.time or 0) > (first.time or 0) and record.directory == first.directory
        assert sorted(path.name for path in run.log_folder.iterdir() if path.is_dir()) == ["0.0", "0.1"]

    @pytest.mark.long
    def test_in_words(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--set", "array.count=12", "--ranks-per-node", "1", "--", "false")
        jobs.wait(run)
        attempts = ", ".join(f"{member}.1" for member in range(10))
        assert again(jobs, run).splitlines() == [
            f"run         {run.id}",
            f"job         {run.job} (local)",
            f"directory   {run.path}",
            f"attempts    {attempts} and 2 more",
        ]
        jobs.wait(run)

    @pytest.mark.long
    def test_hosts_that_were_set_aside(self, jobs: LocalJobs) -> None:
        """castoff's own scheduler can exclude none, and says so."""
        run = jobs.submit(sh="false")
        jobs.wait(run)
        jobs.until_tidy(run)
        (run.path / "set-aside").mkdir()
        record = {"host": "n2", "reason": "it does not answer", "attempt": 0}
        (run.path / "set-aside" / "n2.json").write_text(json.dumps(record))
        answer = jobs.castoff("resubmit", run.path)
        assert answer.stderr.startswith(
            "castoff: castoff's own scheduler cannot exclude hosts: the job may get n2, "
        )
        jobs.wait(run)
        assert json.loads(again(jobs, run, "--all-hosts", "--json"))["excluded"] == []

    @pytest.mark.long
    def test_it_is_pending_at_once(self, castoff: Castoff, jobs: LocalJobs) -> None:
        """Not over, as it was a moment ago: who waits then waits."""
        run = jobs.submit(sh=SECOND)
        for _ in range(2):
            jobs.wait(run)
            again(jobs, run, "--include-done")
            assert castoff("wait", run.path).returncode == 0

    def test_members_that_are_not_done(self, jobs: LocalJobs) -> None:
        program = f"[ $CASTOFF_ARRAY_INDEX = 1 ] && exit; {SECOND}"
        run = jobs.submit("--set", "array={count: 3, max_concurrent: 1}", sh=program)
        assert endings(jobs.wait(run)) == [["failed"], ["done"], ["failed"]]
        assert json.loads(again(jobs, run, "--member", "2", "--json"))["attempts"] == {"2": 1}
        now = jobs.wait(run)
        assert endings(now) == [["failed"], ["done"], ["failed", "done"]]
        assert json.loads(again(jobs, run, "--json"))["attempts"] == {"0": 1}
        now = jobs.wait(run)
        assert now["ending"] == "done" and endings(now) == [["failed", "done"], ["done"], ["failed", "done"]]
        assert "it is done; --include-done restarts it" in again(jobs, run, code=1)
        assert "member 1 is done; --include-done" in again(jobs, run, "--member", "1", code=1)
        assert f"{run.id}: no member 3; members are 0 to 2" in again(jobs, run, "--member", "3", code=1)
        reported = json.loads(again(jobs, run, "--include-done", "--member", "1", "--json"))
        assert reported["attempts"] == {"1": 1}
        assert endings(jobs.wait(run))[1] == ["done", "done"]

    def test_after_a_stop(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        program = (
            f'{SECOND} && exit; while [ ! -e "$CASTOFF_STOP_FILE" ]; do sleep 0.05; done; '
            'echo resume >"$CASTOFF_OUTCOME_FILE"'
        )
        run = jobs.submit(
            "--set", "array={count: 2, max_concurrent: 1}", "--set", "requeue.max=1", sh=program
        )
        until((jobs.folder / "ran").exists)
        castoff("stop", run.path, "--wait")
        assert endings(jobs.status(run)) == [["resume"], ["cancelled"]]
        again(jobs, run)
        assert not (run.path / "stop").exists()
        assert endings(jobs.wait(run)) == [["resume", "done"], ["cancelled", "done"]]
        assert ran(jobs) == ["0.0", "0.1", "1.1"]

    @pytest.mark.long
    def test_after_a_cancellation(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh=f"{SECOND} || sleep 600")
        until((jobs.folder / "ran").exists)
        castoff("cancel", run.path)
        again(jobs, run)
        assert endings(jobs.wait(run)) == [["cancelled", "done"]]

    @pytest.mark.long
    def test_after_everything_was_killed(self, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh=f"{SECOND} || sleep 600")
        until((jobs.folder / "ran").exists)
        jobs.kill_everything(run)
        assert endings(jobs.status(run)) == [["unknown"]]
        again(jobs, run)
        assert endings(jobs.wait(run)) == [["unknown", "done"]]

    @pytest.mark.long
    def test_requeues_are_counted_anew(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--set", "requeue.max=1", sh='echo resume >"$CASTOFF_OUTCOME_FILE"')
        assert endings(jobs.wait(run)) == [["resume", "walltime"]]
        again(jobs, run)
        reported = jobs.wait(run)
        assert endings(reported) == [["resume", "walltime", "resume", "walltime"]] and reported["code"] == 75

    @pytest.mark.long
    def test_the_script_that_is_there(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--", "no-such-program")
        jobs.wait(run)
        run.script.write_text(run.script.read_text().replace("no-such-program", "touch mended"))
        again(jobs, run)
        assert jobs.wait(run)["ending"] == "done" and (jobs.folder / "mended").exists()

    @pytest.mark.long
    def test_its_name_still_finds_it(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "mine", sh="exit 3")
        jobs.wait(run)
        again(jobs, run)
        index = Index.of(os.environ)
        assert index.find("mine").path == run.path and len(index.entries()) == 1
        assert json.loads(index.path.read_text().splitlines()[-1])["begun"] is True
        jobs.wait(run)


class TestRefusals:
    def test_while_it_runs(self, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        before = run.submission()
        for words in ([], ["--include-done"], ["--member", "0"]):
            said = again(jobs, run, *words, code=1)
            assert said.startswith(f"castoff: {run.id}: still running; `castoff stop` asks it to stop")
        assert run.submission() == before

    @pytest.mark.long
    def test_while_its_script_outlives_its_scheduler(self, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh="touch here; while [ ! -e go ]; do sleep 0.05; done; exit 4")
        until((jobs.folder / "here").exists)
        scheduler = jobs.scheduler(run)
        scheduler.kill()
        until(lambda: not scheduler.is_running())
        assert "still running" in again(jobs, run, code=1)
        (jobs.folder / "go").touch()
        assert jobs.wait(run)["code"] == 4
        again(jobs, run)
        assert endings(jobs.wait(run)) == [["failed", "failed"]]

    @pytest.mark.everyday("submission.json")
    @pytest.mark.parametrize("name", ["plan.json", "submission.json"])
    def test_damaged(self, jobs: LocalJobs, name: str) -> None:
        run = jobs.submit(sh="exit 3")
        jobs.wait(run)
        (run.path / name).write_text('{"half": ')
        assert "plan.json or submission.json is missing or damaged" in again(jobs, run, code=1)

    def test_on_another_host(self, jobs: LocalJobs, until: Until) -> None:
        """Whose locks may not be seen from here. What is over is over everywhere."""
        run = jobs.submit("--set", "array={count: 2, max_concurrent: 1}", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        jobs.kill_everything(run)
        who = run.path / "local.json"
        who.write_text(who.read_text().replace(socket.gethostname(), "login7"))
        assert again(jobs, run, code=1).endswith("runs, or ran, on login7: resubmit it there\n")

    @pytest.mark.long
    def test_a_scheduler_that_does_not_start(self, jobs: LocalJobs, tmp_path: Path) -> None:
        """What was done stays done, and the next attempt is still the next one."""
        program = f"[ $CASTOFF_ARRAY_INDEX = 1 ] && exit; {SECOND}"
        run = jobs.submit("--set", "array.count=2", sh=program)
        jobs.wait(run)
        (tmp_path / "broken" / "psutil").mkdir(parents=True)
        (tmp_path / "broken" / "psutil" / "__init__.py").write_text("raise ImportError('broken here')\n")
        said = again(jobs, run, code=1, PYTHONPATH=str(tmp_path / "broken"))
        assert "broken here" in said and "nothing was started" in said
        reported = jobs.status(run)
        assert "broken here" in reported["reason"] and [one["ending"] for one in reported["members"]] == [
            *("failed", "done")
        ]
        assert json.loads(again(jobs, run, "--json"))["attempts"] == {"0": 1}
        assert jobs.wait(run)["ending"] == "done"
        assert len(submission_of(run).earlier) == 2 and "broken" in str(submission_of(run).earlier[1].error)


class TestSecrets:
    JOB = "env_from: [TOKEN]\ncommand: [sh, -c, 'echo $CASTOFF_ATTEMPT $TOKEN >>ran; exit 3']\n"

    def test_secrets_are_removed_with_the_run_and_read_anew(self, jobs: LocalJobs) -> None:
        run = jobs.submit(jobs.job(self.JOB), env={"TOKEN": "s3cr3t"})
        jobs.wait(run)
        before = run.submission()
        assert jobs.holders(run, "s3cr3t") == []
        assert "env_from: TOKEN not set in this environment" in again(jobs, run, code=1)
        assert run.submission() == before
        again(jobs, run, TOKEN="new")
        jobs.wait(run)
        assert ran(jobs) == ["0", "s3cr3t", "1", "new"]
        assert not (run.path / "secrets.sh").exists()


class TestAfter:
    def test_what_held_once_is_not_waited_for_again(self, jobs: LocalJobs) -> None:
        jobs.submit("--name", "first", sh="exit 3")
        run = jobs.submit("--set", "after.afternotok=[first]", sh=SECOND)
        assert jobs.wait(run)["ending"] == "failed"
        jobs.submit("--name", "first", sh="true")
        again(jobs, run)
        assert submission_of(run).after == {}
        assert jobs.wait(run)["ending"] == "done"

    @pytest.mark.long
    def test_what_never_held_is(self, jobs: LocalJobs) -> None:
        first = jobs.submit("--name", "first", sh=SECOND)
        run = jobs.submit("--set", "after.afterok=[first]", sh="touch then")
        assert jobs.wait(run)["ending"] == "cancelled"
        again(jobs, run)
        assert jobs.wait(run)["ending"] == "cancelled"
        again(jobs, first)
        assert jobs.wait(first)["ending"] == "done"
        again(jobs, run)
        assert jobs.wait(run)["ending"] == "done" and (jobs.folder / "then").exists()
