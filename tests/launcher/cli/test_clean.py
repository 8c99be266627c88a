"""castoff clean: what goes, what stays, and who is asked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.many_runs import make_runs
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from tests.command_line import NO_BYTECODE
from tests.launcher.status.test_watch import Made

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

Until = Callable[..., None]


@pytest.fixture
def index() -> Index:
    return Index.of(os.environ)


@pytest.fixture
def runs(tmp_path: Path, index: Index) -> list[RunDirectory]:
    return make_runs(tmp_path / "runs", index, 20)


@pytest.fixture
def made(tmp_path: Path, index: Index) -> Made:
    """A run of which nothing is known but that it was submitted."""
    made = Made(tmp_path)
    (made.run.path / "job.sh").touch()
    index.add(made.run, "made")
    return made


def listed(castoff: Castoff) -> list[str]:
    return [one["id"] for one in objects(castoff("list", "--json").stdout)]


class TestWhatGoes:
    def test_real_runs_by_name(self, castoff: Castoff, jobs: LocalJobs) -> None:
        one, two = (jobs.submit("--name", name, sh="echo hello") for name in ("one", "two"))
        jobs.wait(one), jobs.wait(two)
        answer = castoff("clean", "one", "--yes")
        assert (answer.returncode, answer.stderr) == (0, "castoff: removed 1 run\n")
        heading, row = [line.split() for line in answer.stdout.splitlines()]
        assert heading == ["run", "state", "ended", "size", "folder"]
        assert row[:2] == [one.id, "done"] and row[-1] == str(one.path.parent)
        assert list(one.path.parent.iterdir()) == [two.path]
        assert listed(castoff) == [two.id]
        assert "one: no such run; " in castoff("status", "one").stderr

    def test_by_age_and_ending(self, castoff: Castoff, runs: list[RunDirectory], made: Made) -> None:
        now = int(time.time())
        made.attempt("0.0", "done")
        made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0, "time": now - 3600})
        would = objects(castoff("clean", "--ending", "failed", "--dry-run", "--json").stdout)
        assert [one["id"] for one in would] == [runs[9].id, runs[19].id]
        assert all(one["bytes"] > 1000 and not one["removed"] for one in would)
        assert len(listed(castoff)) == 21
        answer = castoff("clean", "--ending", "failed", "--yes", "--json")
        assert [one["removed"] for one in objects(answer.stdout)] == [True, True]
        assert castoff("clean", "--older-than", "1d", "--yes").stderr == "castoff: removed 18 runs\n"
        assert listed(castoff) == ["run"]
        answer = castoff("clean", "--older-than", "1d", "--yes")
        assert (answer.returncode, answer.stderr) == (0, "castoff: there is nothing to remove\n")
        assert castoff("clean", "--older-than", "59m", "--ending", "done", "--yes").returncode == 0
        assert listed(castoff) == []

    def test_filters_hold_for_what_is_named_too(self, castoff: Castoff, runs: list[RunDirectory]) -> None:
        answer = castoff("clean", runs[8].id, runs[9].id, "--ending", "failed", "--yes")
        assert (answer.returncode, answer.stderr) == (0, "castoff: removed 1 run\n")
        assert not runs[9].path.exists() and runs[8].path.exists()

    def test_active_runs_are_kept(
        self, castoff: Castoff, jobs: LocalJobs, until: Until, runs: list[RunDirectory]
    ) -> None:
        going = jobs.submit("--name", "going", sh="touch here; sleep 600")
        waiting = jobs.submit("--name", "waiting", "--set", "after.afterok=[going]", sh="true")
        until((jobs.folder / "here").exists)
        answer = castoff("clean", "going", "waiting", runs[0].id, "--yes")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.splitlines() == [
            f"castoff: {going.id}: is running; castoff cancel {going.id} ends it",
            f"castoff: {waiting.id}: is pending; castoff cancel {waiting.id} ends it",
        ]
        assert runs[0].path.exists(), "one that cannot go holds the others that were named with it"
        assert castoff("clean", "--older-than", "0s", "--yes").stderr == "castoff: removed 20 runs\n"
        assert {path.name for path in going.path.parent.iterdir()} == {going.id, waiting.id}

    @pytest.mark.long
    def test_what_a_waiting_run_needs_stays(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        """Its scheduler has not come to look at it yet."""
        done = jobs.submit("--name", "done", sh="true")
        jobs.submit("--name", "going", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        jobs.wait(done)
        waiting = jobs.submit(
            "--set", "after={afterany: [going], afterok: [done]}", "--name", "last", sh="true"
        )
        said = f"{done.id}: {waiting.id} waits for it, and needs to see how it ended\n"
        answer = castoff("clean", "done", "--yes")
        assert (answer.returncode, answer.stderr) == (1, f"castoff: {said}")
        answer = castoff("clean", "--ending", "done", "--yes")
        assert answer.returncode == 0 and said in answer.stderr and done.path.exists()
        castoff("cancel", "going")
        assert jobs.wait(waiting)["ending"] == "done"
        assert castoff("clean", "done", "--yes").returncode == 0

    def test_what_is_unknown_stays(self, castoff: Castoff, made: Made) -> None:
        answer = castoff("clean", "--older-than", "0s", "--yes")
        assert (answer.returncode, answer.stderr) == (0, "castoff: there is nothing to remove\n")
        answer = castoff("clean", "made", "--yes")
        assert answer.returncode == 1
        assert "its scheduler is gone and no ending was recorded" in answer.stderr
        assert answer.stderr.endswith(
            f"; if you know that it is not active, remove {made.run.path} yourself\n"
        )
        assert made.run.script.exists()

    def test_the_directory_of_a_script_submitted_without_castoff(self, castoff: Castoff, made: Made) -> None:
        """Its scheduler could start it again: it goes if it is named, and by its age after a while."""
        (made.run.path / "submission.json").unlink()
        made.attempt("0.0", "resume")
        assert "castoff did not submit it" in castoff("clean", "made", "--yes").stderr
        ending = {"ending": "done", "code": 0, "time": int(time.time())}
        made.write("attempts/0.0/ending.json", ending)
        answer = castoff("clean", "--ending", "done", "--yes")
        assert "its scheduler may still requeue it" in answer.stderr and made.run.path.exists()
        assert castoff("clean", "made", "--yes").returncode == 0
        assert not made.run.path.exists()

    def test_what_the_index_remembers_wrongly(self, castoff: Castoff, runs: list[RunDirectory]) -> None:
        """It chooses by the index and decides by the run's own records."""
        listed(castoff)
        (runs[0].path / "attempts" / "0.0" / "ending.json").unlink()
        answer = castoff("clean", "--older-than", "1d", "--yes")
        assert f"castoff: {runs[0].id}: its scheduler is gone and no ending was recorded" in answer.stderr
        assert [run.path.exists() for run in runs] == [True] + [False] * 19

    @pytest.mark.long
    def test_an_interrupt_leaves_no_half_run(self, castoff: Castoff, runs: list[RunDirectory]) -> None:
        """Killed in the middle of removing, again and again: what is listed is whole."""
        folder = runs[0].path.parent
        for run in runs[8:]:
            shutil.rmtree(run.path)
        while listed(castoff):
            words = ["castoff", "clean", "--older-than", "1d", "--yes"]
            cleaning = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            before = len(_visible(folder))
            while len(_visible(folder)) == before and cleaning.poll() is None:
                pass
            cleaning.send_signal(signal.SIGKILL)
            cleaning.wait()
            for path in _visible(folder):
                held = {inner.name for inner in path.iterdir()}
                assert {"job.sh", "plan.json", "attempts", "submission.json"} <= held
            assert sorted(listed(castoff)) == sorted(path.name for path in _visible(folder))
        castoff("clean", "--older-than", "1d", "--yes")
        assert list(folder.iterdir()) == []

    def test_what_cannot_be_removed(self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path) -> None:
        wrapper = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && "
        words = ["unshare", "--mount", "sh", "-c", f"{wrapper} castoff clean --ending failed --yes"]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if "unshare" in answer.stderr or "mount:" in answer.stderr:
            pytest.skip("only root can mount")
        assert answer.returncode == 1
        for run in (runs[9], runs[19]):
            assert f"castoff: {run.path}: cannot be removed: Read-only file system\n" in answer.stderr
            assert run.script.exists()


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


class TestAsking:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "name the runs, or choose them as in castoff clean --older-than 30d"),
            (["--yes"], "name the runs, or choose them"),
            (
                ["--ending", "done"],
                "cannot ask without a terminal: give --yes, or --dry-run to see what would be removed",
            ),
            (["--ending", "done", "--json"], "cannot ask without a terminal"),
            (["--ending", "unknown", "--yes"], "--ending: is 'unknown', but takes one of"),
            (["--older-than", "old", "--yes"], "--older-than: is 'old', but takes an age"),
            (["nothing", "--yes"], "nothing: no such run"),
        ],
    )
    def test_what_is_not_clear(
        self, castoff: Castoff, runs: list[RunDirectory], words: list[str], said: str
    ) -> None:
        answer = castoff("clean", *words)
        assert answer.returncode != 0 and answer.stdout == "" and answer.stderr.count("\n") == 1
        assert said in answer.stderr
        assert len(listed(castoff)) == 20

    def test_on_a_terminal_it_asks(self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path) -> None:
        words = ("castoff", "clean", "--ending", "failed")
        answer = on_terminal(*words, cwd=tmp_path, columns=200, typed="n\n")
        assert answer.code == 1
        assert "Remove 2 runs, " in answer.output and "castoff: nothing was removed\n" in answer.output
        assert len(listed(castoff)) == 20
        answer = on_terminal(*words, cwd=tmp_path, columns=200, typed="y\n")
        assert answer.code == 0 and "castoff: removed 2 runs\n" in answer.output
        assert len(listed(castoff)) == 18

    def test_without_an_index_that_can_be_written(
        self, castoff: Castoff, runs: list[RunDirectory], index: Index
    ) -> None:
        """A disk may be full, and that is why somebody cleans up."""
        castoff("list")
        limit = index.path.stat().st_size // 512
        words = f"trap '' XFSZ; {NO_BYTECODE}; ulimit -f {limit}; castoff clean --ending failed --yes"
        answer = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
        assert not runs[9].path.exists() and not runs[19].path.exists()
        assert "castoff: removed 2 runs\n" in answer.stderr
        assert len(listed(castoff)) == 18


def test_a_directory_that_was_replaced_meanwhile(
    castoff: Castoff, runs: list[RunDirectory], tmp_path: Path
) -> None:
    listed(castoff)
    outside = tmp_path / "outside"
    shutil.move(runs[9].path, outside)
    runs[9].path.symlink_to(outside)
    answer = castoff("clean", "--ending", "failed", "--yes")
    assert "is a link to" in answer.stderr
    assert (outside / "job.sh").exists() and not runs[19].path.exists()


def test_the_python_that_runs_it_does_not_matter(castoff: Castoff, runs: list[RunDirectory]) -> None:
    code = "from castoff.launcher.cli.main import main; main(['clean', '--ending', 'failed', '--yes'])"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
    assert len(listed(castoff)) == 18
