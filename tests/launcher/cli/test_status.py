"""status and wait, of runs that go on, are over, were moved, or are damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory
from tests import patience
from tests.cases import others_long

from ..conftest import Castoff, LocalJobs, objects

Until = Callable[..., None]


class TestStatus:
    def test_of_none(self, castoff: Castoff) -> None:
        answer = castoff("status")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.startswith("castoff: there are no runs yet; `castoff list --scan FOLDER`")

    @pytest.mark.long
    def test_without_a_word_it_is_the_newest(self, castoff: Castoff, jobs: LocalJobs) -> None:
        jobs.submit("--name", "older", sh="true")
        run = jobs.submit("--name", "newer", sh="true")
        jobs.wait(run)
        output = castoff("status").stdout
        assert output.startswith(f"run        {run.id}\n") and "state      ended, done\n" in output
        assert json.loads(castoff("status", "--json").stdout)["id"] == run.id

    def test_in_words(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "mine", "--set", "sample_use=false", sh="exit 3")
        jobs.wait(run)
        for reference in ("mine", run.id, run.id[:-2], run.job, run.path, f"{run.path}/"):
            assert reference is not None
            answer = castoff("status", reference)
            assert answer.returncode == 0, answer.stderr
            lines = answer.stdout.splitlines()
            assert lines[:2] == [f"run        {run.id}", f"site       local, job {run.job}"]
            assert lines[2].startswith("submitted  ") and lines[2].endswith("s ago")
            assert lines[3:5] == [f"directory  {run.path}", "state      ended, failed (code 3)"]
            assert lines[5].startswith("attempt    0  failed after ")
            assert lines[6].startswith("           rank 0 on ")
            assert lines[6].endswith(" failed first: exit code 3")
            assert lines[7:] == [f"           logs in {run.path}/logs/0.0"]

    def test_the_step_that_was_reached(self, castoff: Castoff, jobs: LocalJobs) -> None:
        line = '{"step": 7, "total_steps": 9, "train/loss": 0.5}'
        run = jobs.submit(sh=f"echo '{line}' >> \"$CASTOFF_METRICS_FILE\"; exit 3")
        jobs.wait(run)
        assert "\nprogress   step 7/9, train/loss 0.5\n" in castoff("status", run.id).stdout

    def test_members_whose_script_is_elsewhere(self, castoff: Castoff, jobs: LocalJobs) -> None:
        """As in a job that they share. A member that was cancelled before it began is not shown as failed."""
        run = jobs.submit("--set", "array.count=3", sh="true")
        jobs.wait(run)
        (run.path / "attempts" / "1.0" / "hosts").write_text("far\n")
        shutil.rmtree(run.path / "attempts" / "2.0")
        (run.path / "attempts" / "2.0").mkdir(mode=0o700)
        why = {"ending": "cancelled", "code": 143, "time": 1, "reason": "cancelled before it began"}
        (run.path / "attempts" / "2.0" / "ending.json").write_text(json.dumps(why))
        _, _, table = castoff("status", run.id).stdout.partition("\n\n")
        hosts = [line.split()[-1] for line in table.splitlines()[1:]]
        assert hosts == [os.uname().nodename, "far", "-"]

    def test_the_code_is_that_of_a_member_with_the_runs_ending(
        self, castoff: Castoff, jobs: LocalJobs
    ) -> None:
        """Not that of one that was cancelled."""
        run = jobs.submit("--set", "array.count=2", sh='exit "$CASTOFF_ARRAY_INDEX"')
        jobs.wait(run)
        why = {"ending": "cancelled", "code": 143, "time": 1}
        (run.path / "attempts" / "0.0" / "ending.json").write_text(json.dumps(why))
        assert "state      ended, failed (code 1)\n" in castoff("status", run.id).stdout

    def test_a_program_that_is_not_found(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit(sh="exec no-such-program")
        jobs.wait(run)
        output = castoff("status", run.id).stdout
        assert re.search(r"failed first: exit code 127 \(.*no-such-program: not found\)\n", output), output

    def test_a_rank_that_ended_well_while_others_run(
        self, castoff: Castoff, jobs: LocalJobs, until: Until
    ) -> None:
        run = jobs.submit("--ranks-per-node", "2", sh='[ "$RANK" = 1 ] || exec sleep 1000')
        attempt = run.path / "attempts" / "0.0"
        until((attempt / "ended" / "1").exists)
        record = json.loads((attempt / "start.json").read_text())
        began = time.time() - 33
        (attempt / "start.json").write_text(json.dumps({**record, "time": began}))
        os.utime(attempt / "ended" / "1", (0, began + 3))
        assert "rank 1 ended well after 3 s, while others still run\n" in castoff("status", run.id).stdout
        (early,) = json.loads(castoff("status", run.id, "--json").stdout)["members"][0]["attempts"][0][
            "ended_early"
        ]
        assert early["rank"] == 1
        castoff("cancel", run.id)

    @pytest.mark.long
    def test_of_several(self, castoff: Castoff, jobs: LocalJobs) -> None:
        """Each once, in the order given; those of --name are found as `wait` finds them."""
        first, second = (
            jobs.submit("--name", name, sh=f"exit {code}") for name, code in (("a", 3), ("b", 0))
        )
        jobs.wait(first), jobs.wait(second)
        answer = castoff("status", "b", "a", second.id)
        starts = [line for line in answer.stdout.splitlines() if line.startswith("run ")]
        assert starts == [f"run        {second.id}", f"run        {first.id}"]
        assert f"\n\nrun        {first.id}\n" in answer.stdout and answer.returncode == 0
        assert [one["id"] for one in objects(castoff("status", "--name", "[ab]", "--json").stdout)] == [
            *(first.id, second.id)
        ]
        answer = castoff("status", "a", "nothing", "neither")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert [line.split(":")[1] for line in answer.stderr.splitlines()] == [" nothing", " neither"]

    def test_while_it_runs(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(sh="echo half; touch here; while [ ! -e go ]; do sleep 0.05; done")
        until((jobs.folder / "here").exists)
        reported = json.loads(castoff("status", run.path, "--json").stdout)
        assert (reported["state"], reported["ending"], reported["code"]) == ("running", None, None)
        until(lambda: "half" in castoff("logs", run.path).stdout)
        assert castoff("logs", run.path, "--rank", "0").stdout == "half\n"
        late = castoff("wait", run.path, "--timeout", "0.3")
        assert (late.returncode, late.stdout) == (124, "")
        assert late.stderr == f"castoff: {run.id} is still running after 0.3 s\n"
        (jobs.folder / "go").touch()
        done = castoff("wait", run.path)
        assert (done.returncode, done.stdout) == (0, f"{run.id}: done\n")

    @pytest.mark.long
    def test_never_unknown_while_it_is_submitted(self, jobs: LocalJobs, castoff: Castoff) -> None:
        """From its first moment in the index on, somebody sees to a run."""
        waits = ["sh", "-c", "until [ -e go ]; do sleep 0.1; done"]
        words = ["castoff", "submit", "--site", "local", "--", *waits]
        states = set()
        for _ in range(2):
            submitting = subprocess.Popen(words, cwd=jobs.folder, stdout=subprocess.DEVNULL)
            while submitting.poll() is None:
                states |= {jobs.status(run)["state"] for run in _indexed()}
            states |= {jobs.status(run)["state"] for run in _indexed()}
        assert states and states <= {"pending", "running"}

    def test_of_nothing(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "job.sh").touch()
        for reference, said in (
            ("nothing", "no such run; `castoff list` shows your runs"),
            ("", "an empty name: no such run"),
            (".", "no job.sh next to attempts/"),
            ("..", "no job.sh next to attempts/"),
            ("/nowhere", "no job.sh next to attempts/"),
            ("x" * 5000, "no such run"),
        ):
            for verb in ("status", "wait", "logs", "cancel"):
                if verb == "status" or reference == "nothing":
                    answer = castoff(verb, reference)
                    assert (answer.returncode, answer.stdout) == (1, "")
                    assert said in answer.stderr and answer.stderr.count("\n") == 1

    def test_of_a_name_that_is_nearly_right(self, castoff: Castoff, jobs: LocalJobs) -> None:
        jobs.submit("--name", "train", sh="true")
        said = "tran: no such run; did you mean train?; `castoff list` shows your runs"
        assert said in castoff("logs", "tran").stderr

    def test_a_name_wins_over_a_folder(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        run = jobs.submit("--name", "train", sh="true")
        jobs.wait(run)
        shutil.copytree(run.path, tmp_path / "train")
        assert json.loads(castoff("status", "train", "--json").stdout)["id"] == run.id
        assert json.loads(castoff("status", "train/", "--json").stdout)["id"] == "train"

    @pytest.mark.long
    def test_a_beginning_of_several(self, castoff: Castoff, jobs: LocalJobs) -> None:
        runs = [jobs.submit("--name", name, sh="true") for name in ("ab", "ac")]
        answer = castoff("status", "a")
        assert answer.returncode == 1
        assert (
            answer.stderr
            == "castoff: a: 2 runs have ids that begin with this; give more of the id; the newest: "
            f"{runs[1].id}, {runs[0].id}\n"
        )


def _indexed() -> list[RunDirectory]:
    path = Path(os.environ["XDG_STATE_HOME"]) / "castoff" / "runs.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [RunDirectory(Path(json.loads(line)["path"])) for line in lines]


class TestWait:
    @pytest.mark.everyday("124")
    @pytest.mark.parametrize("code", others_long([0, 1, 42, 124, 255], [0, 124]))
    def test_its_code_is_the_job_s(self, castoff: Castoff, jobs: LocalJobs, code: int) -> None:
        run = jobs.submit(sh=f"exit {code}")
        answer = castoff("wait", run.path, "--json")
        assert answer.returncode == code
        assert json.loads(answer.stdout)["code"] == code
        assert json.loads(answer.stdout)["ending"] == ("failed" if code else "done")

    def test_a_signal(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit(sh="kill -SEGV $$")
        answer = castoff("wait", run.path)
        why = f"rank 0 on {socket.gethostname()} failed first: killed by SIGSEGV"
        assert (answer.returncode, answer.stdout) == (128 + 11, f"{run.id}: failed: {why}\n")
        assert "killed by SIGSEGV" in castoff("status", run.path).stdout


class TestDamage:
    def test_a_directory_that_was_moved(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        run = jobs.submit("--name", "mine", sh="echo hello; exit 3")
        jobs.wait(run)
        gone = (
            f"{run.id}: its directory {run.path} is gone; if it was moved, name its new path, or let "
            "`castoff list --scan FOLDER` find it"
        )
        moved = RunDirectory(run.path.rename(tmp_path / "moved elsewhere"))
        reported = json.loads(castoff("status", moved.path, "--json").stdout)
        assert (reported["id"], reported["name"], reported["code"]) == ("moved elsewhere", "mine", 3)
        assert "hello" in castoff("logs", moved.path).stdout
        assert castoff("status", run.id).stderr == f"castoff: {gone}\n"
        assert "moved elsewhere" in castoff("list").stdout, "it lies in the working directory"
        answer = castoff("list", "--scan", tmp_path)
        assert answer.stderr == f"castoff: {tmp_path}: 1 run found, none new\n"
        assert json.loads(castoff("status", "mine", "--json").stdout)["directory"] == str(moved.path)

    def test_half_written_records(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "mine", "--ranks-per-node", "2", sh="exit $RANK")
        jobs.wait(run)
        for name in ("start.json", "failure.json", "ending.json"):
            path = run.path / "attempts" / "0.0" / name
            whole = path.read_bytes()
            for damaged in (b"", whole[: len(whole) // 2], b'[{"code": "x"}]', b'{"code": "x"}', b"\xff"):
                path.write_bytes(damaged)
                assert jobs.status(run)["id"] == run.id
            for verb in ("status", "logs"):
                answer = castoff(verb, run.path)
                assert (answer.returncode, answer.stderr) == (0, "")
            path.write_bytes(whole)
        for name in ("plan.json", "submission.json", "local.json"):
            (run.path / name).write_text('{"array_count": ')
        answer = castoff("list")
        assert (answer.returncode, answer.stderr) == (0, "") and run.id in answer.stdout
        assert jobs.status(run)["ending"] == "failed"

    def test_a_directory_that_may_not_be_written(self, castoff: Castoff, jobs: LocalJobs) -> None:
        """As root, who may write anywhere, by a mount that nobody may write to."""
        run = jobs.submit("--name", "mine", sh="echo hello")
        jobs.wait(run)
        jobs.until_tidy(run)
        for path in (*run.path.rglob("*"), run.path):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o222)
        words = ["castoff", "cancel", str(run.path)]
        lock = run.path / "local.lock"
        code = (
            f"import fcntl; held = open({str(lock)!r}); fcntl.flock(held, fcntl.LOCK_EX);"
            "import sys, subprocess; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
        )
        try:
            status = _without_power(["castoff", "status", str(run.path)])
            assert status.returncode == 0 and "ended, done" in status.stdout
            # One that goes on, as its lock says, cannot be cancelled by who may not write there.
            (run.path / "attempts" / "0.0" / "ending.json").unlink()
            asked = _without_power([sys.executable, "-c", code, *words])
        finally:
            for path in (run.path, *run.path.rglob("*")):
                path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o200)
        assert (asked.returncode, asked.stdout) == (1, "")
        assert asked.stderr.startswith(f"castoff: {run.path}: cannot be written; {run.id} is still active: ")

    def test_an_index_that_was_cut_off(self, castoff: Castoff, jobs: LocalJobs, fresh_home: Path) -> None:
        first = jobs.submit("--name", "first", sh="true")
        index = fresh_home / ".local" / "state" / "castoff" / "runs.jsonl"
        assert stat.S_IMODE(index.stat().st_mode) == 0o600
        with index.open("ab") as file:
            file.write(b'{"path": "/half\xff')
        second = jobs.submit("--name", "second", sh="true")
        reported = objects(castoff("list", "--json").stdout)
        assert [one["id"] for one in reported] == [first.id, second.id]
        shutil.rmtree(_over(jobs, first).path)
        assert [one["id"] for one in objects(castoff("list", "--json").stdout)] == [second.id]

    def test_an_index_that_is_none(self, castoff: Castoff, tmp_path: Path) -> None:
        (tmp_path / "castoff" / "runs.jsonl").mkdir(parents=True)
        answer = castoff("status", env={"XDG_STATE_HOME": str(tmp_path)})
        assert answer.returncode == 1
        assert answer.stderr.startswith(
            f"castoff: {tmp_path}/castoff/runs.jsonl: the index of runs cannot be"
        )

    def test_a_script_that_ran_by_hand(self, castoff: Castoff, jobs: LocalJobs, tmp_path: Path) -> None:
        castoff("render", "-o", "job.sh", "--site", "local", "--", "sh", "-c", "exit 3")
        by_hand = subprocess.run(["bash", "job.sh"], cwd=tmp_path, capture_output=True, text=True)
        assert by_hand.returncode == 3, by_hand.stderr
        (folder,) = tmp_path.glob("castoff-local-*")
        reported = json.loads(castoff("status", folder.name, "--json").stdout)
        assert (reported["state"], reported["ending"], reported["code"]) == ("ended", "failed", 3)
        (folder / "attempts" / "0.0" / "ending.json").unlink()
        reported = json.loads(castoff("status", folder.name, "--json").stdout)
        assert reported["state"] == "unknown" and "castoff did not submit it" in reported["reason"]


def _over(jobs: LocalJobs, run: RunDirectory) -> RunDirectory:
    jobs.wait(run)
    patience.until(lambda: not is_alive(run))
    return run


def _without_power(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user: root without the capability to write anywhere."""
    dropped = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all", "--"]
    prefix = dropped if os.geteuid() == 0 else []
    return subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
