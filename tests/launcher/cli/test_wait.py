"""castoff wait and cancel: of several runs, on a terminal, and of runs that are not castoff's to end."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.runs.run import LOCK, locked
from tests import patience
from tests.launcher.status.test_watch import Made

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

Until = Callable[..., None]


def screen(output: str) -> list[str]:
    """What stands on a terminal in the end, for the few escapes that rich sends."""
    lines, at, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", output):
        if part == "\n":
            at, column = at + 1, 0
            lines += [""] * (at == len(lines))
        elif part == "\r":
            column = 0
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part == "\x1b[1A":
            at -= 1
        elif not part.startswith("\x1b"):
            lines[at] = lines[at][:column].ljust(column) + part + lines[at][column + len(part) :]
            column += len(part)
        else:
            assert re.fullmatch(r"\x1b\[(\?25[lh]|[0-9;]*m)", part), f"unknown escape {part!r}"
    return [line for line in lines if line]


class TestWait:
    def test_several(self, castoff: Castoff, jobs: LocalJobs) -> None:
        good, bad, worse = (
            jobs.submit("--name", name, sh=program)
            for name, program in (("good", "true"), ("bad", "sleep 0.5; exit 3"), ("worse", "exit 4"))
        )
        answer = castoff("wait", "good", "bad", "worse", "good")
        assert answer.returncode == 3, "the first that is not 0, in the order given"
        told = answer.stdout.splitlines()
        assert sorted(told) == sorted([f"{good.id}: done", f"{bad.id}: failed", f"{worse.id}: failed"])
        ended = objects(castoff("wait", "bad", "good", "--json").stdout)
        assert [one["code"] for one in ended] == [3, 0]

    def test_each_is_told_as_it_ends(self, jobs: LocalJobs) -> None:
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

    def test_too_long(self, castoff: Castoff, jobs: LocalJobs) -> None:
        jobs.wait(jobs.submit("--name", "quick", sh="true"))
        slow = jobs.submit("--name", "slow", sh="touch here; sleep 86400")
        patience.until((jobs.folder / "here").exists)
        answer = castoff("wait", "quick", "slow", "--timeout", "0.1")
        assert answer.returncode == 124 and "quick-" in answer.stdout
        assert answer.stderr == f"castoff: {slow.id} is still running after 0.1 s\n"

    def test_progress_on_a_terminal_alone(
        self, castoff: Castoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = Made(tmp_path, members=3)
        made.write("plan.json", {"name": "made", "scheduler": "local", "array_count": 3, "walltime": 7200})
        (made.run.path / "job.sh").touch()
        made.attempt("0.0", "done")
        made.attempt("1.0")
        start = {"host": "here", "time": int(time.time()) - 600}
        made.write("attempts/1.0/start.json", start)

        def end() -> None:
            made.write("attempts/1.0/ending.json", {"ending": "failed", "code": 3, "time": 1})
            made.attempt("2.0", "done")
            (made.run.path / "attempts" / "1.0" / "settled").touch()

        for terminal in (True, False):
            for path in made.run.path.glob("attempts/2.0/*"):
                path.unlink()
            if not terminal:
                (made.run.path / "attempts" / "2.0").rmdir()
                (made.run.path / "attempts" / "1.0" / "settled").unlink()
            with locked(made.run.path / LOCK):
                if terminal:
                    words = r"run: running, 1/3 done, 1 running, 1 pending, for 10m, at most 1h\d\dm left"
                    answer = on_terminal(
                        *("castoff", "wait", made.run.path), cwd=tmp_path, columns=120, then=[(words, end)]
                    )
                    assert re.search(words, answer.output), answer.output
                    assert answer.code == 3
                    assert answer.output.endswith("run: failed\n")
                else:
                    monkeypatch.setattr(time, "sleep", lambda _: end())  # after a look, before the next
                    plain = castoff("wait", made.run.path)
                    assert (plain.stdout, plain.stderr) == ("run: failed\n", "")

    def test_what_was_printed_is_not_taken_away(self, jobs: LocalJobs) -> None:
        """By what makes room for the progress of the others."""
        waits = "until [ -e $0 ]; do sleep 0.05; done"
        runs = [
            jobs.submit("--name", f"n{number}", sh=program)
            for number, program in enumerate(("true", waits.replace("$0", "go1"), waits.replace("$0", "go2")))
        ]
        then = [
            (f"{runs[0].id}: done", (jobs.folder / "go1").touch),
            (rf"{runs[1].id}: done(?s:.*){runs[2].id}: running", (jobs.folder / "go2").touch),
        ]
        answer = on_terminal("castoff", "wait", "n0", "n1", "n2", cwd=jobs.folder, columns=120, then=then)
        assert screen(answer.output) == [f"{run.id}: done" for run in runs]
        assert answer.output.index(f"{runs[1].id}: done") < answer.output.rindex(f"{runs[2].id}: running")

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
            assert answer.stderr == f"castoff: run: castoff did not submit it, so it cannot end it; {way}\n"
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
        assert answer.stderr.startswith(f"castoff: {made.run.path}: cannot be written, so run goes on: ")

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
