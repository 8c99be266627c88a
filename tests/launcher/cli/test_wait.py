"""castoff wait and cancel: of several runs, on a terminal, and of runs that are not castoff's to end."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.process.locks import locked
from castoff.launcher.runs.run import LOCK
from tests import patience
from tests.launcher.status.test_watch import Made

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

Until = Callable[..., None]


class TestWait:
    def test_several(self, castoff: Castoff, jobs: LocalJobs) -> None:
        good, bad, worse = (
            jobs.submit("--name", name, sh=program)
            for name, program in (("good", "true"), ("bad", "sleep 0.5; exit 3"), ("worse", "exit 4"))
        )
        answer = castoff("wait", "good", "bad", "worse", "good")
        assert answer.returncode == 3, "the first that is not 0, in the order given"
        reported = answer.stdout.splitlines()
        why = f"failed: rank 0 on {socket.gethostname()} failed first: exit code"
        expected = [f"{good.id}: done", f"{bad.id}: {why} 3", f"{worse.id}: {why} 4"]
        assert sorted(reported) == sorted(expected)
        ended = objects(castoff("wait", "bad", "good", "--json").stdout)
        assert [one["code"] for one in ended] == [3, 0]

    @pytest.mark.long
    def test_each_is_reported_as_it_ends(self, jobs: LocalJobs) -> None:
        quick = jobs.submit("--name", "quick", sh="true")
        slow = jobs.submit("--name", "slow", sh="sleep 600")
        words = ["castoff", "wait", "slow", "quick"]
        waiting = subprocess.Popen(words, cwd=jobs.folder, stdout=subprocess.PIPE, text=True)
        assert waiting.stdout is not None
        with waiting.stdout:
            assert waiting.stdout.readline() == f"{quick.id}: done\n"
            assert waiting.poll() is None
            subprocess.run(["castoff", "cancel", "slow"], cwd=jobs.folder, check=True, capture_output=True)
            assert waiting.stdout.read() == f"{slow.id}: cancelled\n"
        assert waiting.wait() == 143

    @pytest.mark.long
    def test_too_long(self, castoff: Castoff, jobs: LocalJobs) -> None:
        jobs.wait(jobs.submit("--name", "quick", sh="true"))
        slow = jobs.submit("--name", "slow", sh="touch here; sleep 86400")
        patience.until((jobs.folder / "here").exists)
        answer = castoff("wait", "quick", "slow", "--timeout", "0.1")
        assert answer.returncode == 124 and "quick-" in answer.stdout
        assert answer.stderr == f"castoff: {slow.id} is still running after 0.1 s\n"

    @pytest.mark.long
    def test_a_beginning_is_said_on_a_terminal_alone(self, castoff: Castoff, jobs: LocalJobs) -> None:
        first = jobs.submit("--name", "first", sh="until [ -e go ]; do sleep 0.05; done")
        second = jobs.submit("--set", "after.afterok=[first]", "--name", "second", sh="true")
        then = [(f"{second.id}: pending", (jobs.folder / "go").touch)]
        answer = on_terminal("castoff", "wait", "second", "first", cwd=jobs.folder, columns=120, then=then)
        said = [line for line in answer.output.splitlines() if "running" not in line]
        assert said == [f"castoff: {second.id}: pending", f"{first.id}: done", f"{second.id}: done"]
        assert castoff("wait", "second").stderr == ""

    def test_a_pipe_gets_the_answer_alone(self, tmp_path: Path) -> None:
        """Progress goes to the terminal beside it."""
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        made.attempt("0.0", "done")
        out_read, out_write = os.pipe()
        answer = on_terminal("castoff", "wait", made.run.path, cwd=tmp_path, stdout=out_write)
        os.close(out_write)
        with os.fdopen(out_read) as output:
            assert (output.read(), answer.code) == ("run: done\n", 0)


class TestCancel:
    def test_a_run_that_is_not_ours_to_end(self, castoff: Castoff, tmp_path: Path) -> None:
        for scheduler, mark, way in (
            ("slurm", "# === castoff for slurm", "scancel x"),
            ("pbs", "# === castoff for pbs", "qdel x"),
            ("local", "# === castoff for local", "end the process that runs its script"),
        ):
            (tmp_path / scheduler).mkdir()
            made = Made(tmp_path / scheduler)
            made.attempt("0.0")
            for name in ("plan.json", "submission.json"):
                (made.run.path / name).unlink()
            made.run.script.write_text(f"{mark}\n# x on big: 1 rank\n")
            answer = castoff("cancel", made.run.path)
            assert (answer.returncode, answer.stdout) == (1, "")
            assert (
                answer.stderr
                == f"castoff: run: castoff did not submit this run, so castoff cannot end it; {way}\n"
            )
            made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0, "time": 1})
            assert castoff("cancel", made.run.path).stdout == "run: ended already, done\n"

    def test_one_that_cannot_be_asked_holds_no_other(
        self, castoff: Castoff, jobs: LocalJobs, until: Until, tmp_path: Path
    ) -> None:
        run = jobs.submit("--name", "mine", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        (made.run.path / "cancel").mkdir()  # nothing can be written there
        with locked(made.run.path / LOCK):
            answer = castoff("cancel", made.run.path, "mine")
        assert answer.returncode == 1
        assert answer.stdout == f"{run.id}: ended, cancelled\n"
        assert answer.stderr.startswith(f"castoff: {made.run.path}: cannot be written; run is still active: ")

    def test_on_another_host(self, castoff: Castoff, tmp_path: Path) -> None:
        """Asked by a file, and waited for by its records, for its locks may not be seen here."""
        made = Made(tmp_path, time=1000)
        (made.run.path / "job.sh").touch()
        made.attempt("0.0")
        made.write("local.json", {"pid": 1, "host": "login7"})
        wish = made.run.path / "cancel"

        def obey() -> None:
            while not wish.exists():
                time.sleep(0.02)
            made.write("attempts/0.0/ending.json", {"ending": "cancelled", "code": 143, "time": 1})
            (made.run.path / "attempts" / "0.0" / "settled").touch()

        scheduler = threading.Thread(target=obey)
        scheduler.start()
        answer = castoff("cancel", made.run.path)
        scheduler.join()
        assert (answer.returncode, answer.stdout) == (0, "run: ended, cancelled\n")
