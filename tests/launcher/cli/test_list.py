"""castoff list, and status of arrays: at a glance for people, in full for programs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from getpass import getuser
from pathlib import Path

import pytest

from bench.many_runs import make_runs
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from tests.command_line import NO_BYTECODE
from tests.launcher.status.test_watch import Made

from ..conftest import Castoff, LocalJobs, give_away, objects
from ..terminal import on_terminal

Until = Callable[..., None]
COMMAND = str(Path(sys.executable).with_name("castoff"))
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")
HEADINGS = ["run", "site", "state", "code", "attempts", "age", "took", "members", "why"]


@pytest.fixture
def index() -> Index:
    return Index.of(os.environ)


@pytest.fixture
def runs(tmp_path: Path, index: Index) -> list[RunDirectory]:
    return make_runs(tmp_path / "runs", index, 100)


def shown_id(run: RunDirectory) -> str:
    """A run's id in a narrow table."""
    return re.sub(r"-\d{8}-\d{6}-", "..", run.id)


def columns(output: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in output.splitlines()]


def test_why_no_rank_began(castoff: Castoff, tmp_path: Path, index: Index) -> None:
    """No record says it, and so the launcher's own words stand for it, also once the index has the ending."""
    words = "srun: error: Unable to create step for job 2: Memory required by task is not available"
    made = Made(tmp_path, members=2)
    made.attempt("0.0", "done")
    made.attempt("1.0", "failed", 1)
    index.add(made.run, "made")
    for member in (0, 1):
        made.run.script_log(member).parent.mkdir(exist_ok=True)
        made.run.script_log(member).write_text(f"member {member}\n{words * member}\nand more\n")
    for _ in range(2):
        assert columns(castoff("list").stdout)[1][-1] == words
    assert objects(castoff("list", "--json").stdout)[0]["reason"] == words
    shutil.rmtree(made.run.path / "logs")
    assert columns(castoff("list").stdout)[1][-1] == words, "the index keeps it"


def alone(castoff: Castoff, folder: Path, name: str) -> RunDirectory:
    """A run whose script was not submitted: somebody handed it to a shell."""
    folder.mkdir(exist_ok=True)
    script = castoff("render", "--site", "local", "--name", name, "--", "true").stdout
    (folder / f"{name}.sh").write_text(script)
    before = {*folder.glob("castoff-*")}
    subprocess.run(
        ["bash", f"{name}.sh"], cwd=folder, env={**os.environ, "CASTOFF_COMMAND": COMMAND}, check=True
    )
    (made,) = {*folder.glob("castoff-*")} - before
    return RunDirectory(made)


@pytest.mark.usefixtures("for_real")
class TestScriptsThatStoodAlone:
    def test_they_are_listed_where_they_are(self, castoff: Castoff, tmp_path: Path) -> None:
        run = alone(castoff, tmp_path, "mine")
        (tmp_path / "castoff-runs").mkdir()
        for _ in range(2):
            (row,) = objects(castoff("list", "--json").stdout)
            assert (row["id"], row["directory"], row["state"]) == (run.id, str(run.path), "ended")
        (tmp_path / "elsewhere").mkdir()  # from now on it is one of all
        assert run.id in castoff("list", cwd=tmp_path / "elsewhere").stdout
        assert castoff("status", run.id, cwd=tmp_path / "elsewhere").returncode == 0

    def test_what_status_was_asked_about_is_listed(self, castoff: Castoff, tmp_path: Path) -> None:
        runs = [alone(castoff, tmp_path / "there", name) for name in ("one", "two")]
        assert objects(castoff("list", "--json").stdout) == []
        reported = objects(castoff("status", "--json", *(run.path for run in runs)).stdout)
        assert [one["id"] for one in reported] == [run.id for run in runs]
        assert {row["id"] for row in objects(castoff("list", "--json").stdout)} == {run.id for run in runs}

    def test_somebody_elses_are_not(self, castoff: Castoff, tmp_path: Path) -> None:
        give_away(alone(castoff, tmp_path, "theirs").path)
        answer = castoff("list", "--json")
        assert (answer.returncode, answer.stdout) == (0, "")


class TestList:
    def test_of_none(self, castoff: Castoff) -> None:
        answer = castoff("list")
        assert (answer.returncode, answer.stdout) == (0, "")
        assert answer.stderr == "castoff: no runs yet; --scan FOLDER finds those in a folder\n"
        answer = castoff("list", "--json")
        assert (answer.stdout, answer.stderr) == ("", "")

    def test_of_real_runs(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        good = jobs.submit("--name", "good", sh="true")
        bad = jobs.submit("--name", "bad", sh="exit 3")
        jobs.wait(good), jobs.wait(bad)
        program = 'touch "here.$CASTOFF_ARRAY_INDEX"; [ $CASTOFF_ARRAY_INDEX = 0 ] || sleep 600'
        slow = jobs.submit("--name", "slow", "--set", "array={count: 3, max_concurrent: 2}", sh=program)
        until(lambda: jobs.status(slow)["members"][0]["state"] == "ended")
        until(lambda: len(list(jobs.folder.glob("here.*"))) == 3)
        later = jobs.submit("--name", "later", "--set", "after.afterok=[slow]", sh="true")
        for _ in range(2):  # once looked at, once remembered
            heading, *rows = columns(castoff("list").stdout)
            assert heading == HEADINGS
            assert [row[:5] for row in rows] == [
                [good.id, "local", "done", "0", "-"],
                [bad.id, "local", "failed", "3", "-"],
                [slow.id, "local", "running", "-", "-"],
                [later.id, "local", "pending", "-", "-"],
            ]
            assert [row[-2] for row in rows] == ["-", "-", "1/3 done, 2 running", "-"]
            assert rows[1][-1].startswith("rank 0 on ") and rows[1][-1].endswith("first: exit code 3")
            assert [rows[place][-1] for place in (0, 2)] == ["-"] * 2
            assert rows[3][-1] == f"it waits for afterok of {slow.id}", "a list says why a run waits, too"
            assert all(re.fullmatch(r"\d+s", row[5]) for row in rows)
        reported = objects(castoff("list", "--json").stdout)
        assert [one["id"] for one in reported] == [run.id for run in (good, bad, slow, later)]
        assert [one["code"] for one in reported] == [0, 3, None, None]
        assert reported[2]["counts"] == {"done": 1, "running": 2} and reported[2]["directory"] == str(
            slow.path
        )
        (slow.path / "stop").touch()
        assert columns(castoff("list", "--name", "slow").stdout)[1][2] == "stopping"
        assert "state      running, asked to stop\n" in castoff("status", "slow").stdout

    def test_a_run_that_was_requeued(self, castoff: Castoff, jobs: LocalJobs) -> None:
        program = '[ "$CASTOFF_ATTEMPT" = 2 ] || echo resume >"$CASTOFF_OUTCOME_FILE"'
        run = jobs.submit("--set", "requeue.max=3", sh=program)
        jobs.wait(run)
        assert columns(castoff("list").stdout)[1][2:5] == ["done", "0", "3"]

    def test_what_fits_a_glance(self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path) -> None:
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        made.write("submission.json", {"job": "local-1", "time": 1_780_000_000})
        Index.of(os.environ).adopt(
            [(made.run, "made", 1_780_000_000, None, {})]
        )  # the oldest, and it goes on
        with made.alive():
            answer = castoff("list")
            assert len(answer.stdout.splitlines()) == 22
            assert columns(answer.stdout)[1][0] == "run"
            assert columns(answer.stdout)[-1][0] == runs[-1].id
            assert answer.stderr == "castoff: 80 older runs are over and not shown; --all shows them\n"
            answer = castoff("list", "--all")
            assert (len(answer.stdout.splitlines()), answer.stderr) == (102, "")
            assert len(objects(castoff("list", "--json").stdout)) == 101

    def test_a_refusal_of_several_lines_is_one_line(
        self, castoff: Castoff, tmp_path: Path, index: Index
    ) -> None:
        made = Made(tmp_path, job=None, error="sbatch: error: no such queue\nsbatch: error: failed")
        index.adopt([(made.run, "made", 1_780_000_000, None, {})])
        row = columns(castoff("list").stdout)[1]
        assert row[-1] == "it could not be submitted: sbatch: error: no such queue sbatch: error: failed"

    def test_filters(self, castoff: Castoff, runs: list[RunDirectory], index: Index, tmp_path: Path) -> None:
        def listed(*words: str) -> list[str]:
            return [one["id"] for one in objects(castoff("list", "--json", *words).stdout)]

        failed = [run.id for run in runs[9::10]]
        assert listed("--state", "failed") == failed
        assert listed("--state", "ended") == [run.id for run in runs]
        assert listed("--state", "failed", "--state", "done", "--name", "caus*") == [
            run.id for run in runs[::4]
        ]
        assert listed("--name", "sweep", "--state", "failed") == [one for one in failed if "sweep" in one]
        assert listed("--state", "running") == listed("--since", "1s") == []
        assert listed("--since", "99999d") == [run.id for run in runs]
        assert listed("-n", "3", "-u", getuser()) == [run.id for run in runs[-3:]]
        assert listed("--limit", "2", "--state", "failed") == failed[-2:]
        made = Made(tmp_path)
        index.add(made.run, "new")
        assert listed("--since", "1h") == listed("--since", "yesterday") == ["run"]
        answer = castoff("list", "--state", "failed", "--name", "new")
        assert (answer.stdout, answer.stderr) == ("", "castoff: no such runs\n")

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--since", "tomorrow"], "'tomorrow', but takes an age"),
            (["--state", "broken"], "'broken', but takes one of "),
            (["--scan", "/nowhere"], "/nowhere: cannot be searched: No such file"),
        ],
    )
    def test_bad_words(self, castoff: Castoff, words: list[str], said: str) -> None:
        answer = castoff("list", *words)
        assert answer.returncode != 0 and said in answer.stderr and answer.stderr.count("\n") == 1

    def test_names_that_would_reach_the_terminal(
        self, castoff: Castoff, index: Index, tmp_path: Path
    ) -> None:
        made = Made(tmp_path)
        made.write("plan.json", {"name": "x", "site": "\x1b]0;mine\x07", "scheduler": "local"})
        made.write("submission.json", {"job": "\x1b[2J", "error": "no\x1b[31m\nspace"})
        index.add(made.run, "x")
        for words in (["list"], ["status", "x"]):
            answer = castoff(*words)
            assert "\x1b" not in answer.stdout and "\\x1b" in answer.stdout
        reported = objects(castoff("list", "--json").stdout)
        assert reported[0]["site"] == "\x1b]0;mine\x07"  # programs get what is there

    def test_with_an_index_that_may_only_be_read(
        self, castoff: Castoff, runs: list[RunDirectory], index: Index
    ) -> None:
        """By a mount, for root may write anywhere else."""
        folder = index.path.parent
        words = f"mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && castoff list"
        wrapper = ["unshare", "--mount", "sh", "-c", words]
        answer = subprocess.run(wrapper, capture_output=True, text=True, check=False)
        if "unshare" in answer.stderr or "mount:" in answer.stderr:
            pytest.skip("only root can mount")
        assert answer.returncode == 0 and len(answer.stdout.splitlines()) == 21
        unwritten, older = answer.stderr.splitlines()
        assert unwritten.startswith(f"castoff: {index.path}: the index of runs cannot be written: Read-only")
        assert older.startswith("castoff: 80 older runs")

    def test_with_a_full_disk(self, runs: list[RunDirectory], tmp_path: Path) -> None:
        """No file may grow beyond what the index has: what is known is listed, and why it stays slow."""
        limit = Index.of(os.environ).path.stat().st_size // 512  # which ulimit counts in
        words = [
            "sh",
            "-c",
            f"trap '' XFSZ; {NO_BYTECODE}; ulimit -f {limit}; castoff list",
        ]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0 and len(answer.stdout.splitlines()) == 21
        assert "the index of runs cannot be written: File too large" in answer.stderr

    def test_no_output_at_all(self, runs: list[RunDirectory], tmp_path: Path) -> None:
        answer = subprocess.run(
            ["sh", "-c", "castoff list >&-"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (answer.returncode, answer.stdout) == (0, "")


class TestScan:
    @pytest.mark.long
    def test_a_lost_index(self, castoff: Castoff, jobs: LocalJobs, index: Index, tmp_path: Path) -> None:
        runs = [jobs.submit("--name", f"n{number}", sh="true") for number in range(2)]
        for run in runs:
            jobs.wait(run)
        castoff("render", "-o", "job.sh", "--site", "local", "--", "sh", "-c", "exit 3")
        subprocess.run(["bash", "job.sh"], cwd=tmp_path, capture_output=True, check=False)
        (by_hand,) = tmp_path.glob("castoff-local-*")
        start = by_hand / "attempts" / "0.0" / "start.json"
        record = json.loads(start.read_text())  # in whole seconds: perhaps that of the other submissions
        start.write_text(json.dumps({**record, "time": record["time"] + 1}))
        index.path.unlink()
        answer = castoff("list", "--scan", ".")
        assert answer.stderr == "castoff: .: 3 runs found, 3 new\n"
        rows = columns(answer.stdout)[1:]
        assert [row[0] for row in rows] == [*(run.id for run in runs), by_hand.name]
        assert rows[2][1:4] == ["local", "failed", "3"]
        assert castoff("list", "--scan", ".").stderr == "castoff: .: 3 runs found, none new\n"
        reported = objects(castoff("list", "--scan", tmp_path / "castoff-runs", "--json").stdout)
        assert len(reported) == 3

    def test_what_is_refused_is_reported(
        self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        runs[0].path.chmod(0o777)
        answer = castoff("list", "--scan", tmp_path)
        assert f"castoff: {runs[0].path}: others may write to it (mode 0777)" in answer.stderr
        assert f"castoff: {tmp_path}: 99 runs found, none new\n" in answer.stderr


class TestTrust:
    @pytest.mark.parametrize("verb", ["status", "logs", "wait", "cancel", "clean"])
    def test_every_verb_refuses(
        self, castoff: Castoff, runs: list[RunDirectory], verb: str, tmp_path: Path
    ) -> None:
        flags = ["--yes"] if verb == "clean" else []
        link = tmp_path / "link"
        link.symlink_to(runs[0].path)
        answer = castoff(verb, link, *flags)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.startswith(f"castoff: {link}: is a link to {runs[0].path}, and castoff follows")
        runs[0].path.chmod(0o720)
        for word in (runs[0].id, str(runs[0].path)):
            answer = castoff(verb, word, *flags)
            assert (answer.returncode, answer.stdout) == (1, "")
            assert answer.stderr.startswith(f"castoff: {runs[0].path}: others may write to it (mode 0720)")
        assert runs[0].script.exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")
    def test_somebody_else_s(self, castoff: Castoff, runs: list[RunDirectory]) -> None:
        os.chown(runs[0].path, 4000, 4000)
        answer = castoff("status", runs[0].id)
        assert answer.stderr.startswith(f"castoff: {runs[0].path}: belongs to user 4000 and you are root: ")
        answer = castoff("list")
        assert "belongs to user 4000" in answer.stderr and len(answer.stdout.splitlines()) == 21

    def test_records_that_are_links_are_not_written_through(
        self, castoff: Castoff, jobs: LocalJobs, until: Until, tmp_path: Path
    ) -> None:
        run = jobs.submit(sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        precious = tmp_path / "precious"
        precious.write_text("kept")
        (run.path / "cancel").symlink_to(precious)
        said = castoff("cancel", run.path).stdout  # its scheduler may see the link first
        assert said in {f"{run.id}: ended, cancelled\n", f"{run.id}: ended already, cancelled\n"}
        assert precious.read_text() == "kept"


class TestTerminal:
    def test_colours_there_and_none_elsewhere(
        self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        answer = on_terminal("castoff", "list", cwd=tmp_path, columns=120)
        assert answer.code == 0 and COLOUR.search(answer.output)
        shown = re.sub(r"\x1b\[[0-9;]*m", "", answer.output)
        heading, *rows = [line.split() for line in shown.splitlines()]
        # without `attempts`, since nothing was requeued, and `site`, since all have the same
        assert heading == ["run", "state", "code", "age", "took", "members", "why"]
        assert [row[0] for row in rows[:-1]] == [run.id for run in runs[-20:]]
        assert shown.splitlines()[-1] == "castoff: 80 older runs are over and not shown; --all shows them"
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            assert not COLOUR.search(on_terminal("castoff", "list", cwd=tmp_path, env=env).output)
        piped = castoff("list", env={"FORCE_COLOR": "1"})
        assert "\x1b" not in piped.stdout + piped.stderr

    @pytest.mark.parametrize(
        ("columns", "left", "hidden"),
        [
            (100, "run state code age took members why", ""),
            (80, "run state age took members why", "1 column hidden: code"),
            (60, "run state age why", "3 columns hidden: code, took, members"),
            (20, "run state", "5 columns hidden: code, age, took, members, why"),
        ],
    )
    def test_a_narrow_one_keeps_the_reasons(
        self, runs: list[RunDirectory], tmp_path: Path, columns: int, left: str, hidden: str
    ) -> None:
        """Ids and reasons are shortened, columns are hidden one after the other, and colours stay."""
        output = on_terminal("castoff", "list", cwd=tmp_path, columns=columns).output
        assert COLOUR.search(output)
        lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
        heading, *rows = lines[:21]
        assert heading.split() == left.split() and max(map(len, rows)) <= columns
        assert (f"castoff: {hidden}; a wider terminal shows all" in lines) == bool(hidden)
        if "why" in left:
            assert "rank 1 on node7 failed" in rows[9]

    def test_an_id_is_accepted_as_shown(
        self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        output = on_terminal("castoff", "list", cwd=tmp_path, columns=60, env={"NO_COLOR": "1"}).output
        ids = [line.split()[0] for line in output.splitlines()[1:21]]
        assert ids[-1] == "sweep..0063"
        found = objects(castoff("status", "--json", *ids).stdout)
        assert [one["id"] for one in found] == [run.id for run in runs[-20:]]
        (member,) = objects(castoff("status", "--json", "sweep..0063:7").stdout)[0]["members"]
        assert member["member"] == 7

    @pytest.mark.long
    def test_more_than_anybody_reads(self, index: Index, tmp_path: Path) -> None:
        runs = make_runs(tmp_path / "runs", index, 500)
        answer = on_terminal("castoff", "list", "--all", cwd=tmp_path, columns=60, env={"NO_COLOR": "1"})
        ids = [line.split()[0] for line in answer.output.splitlines()[-501:-1]]
        assert ids == [shown_id(run) for run in runs]


class TestStatusOfArrays:
    def test_a_row_for_each_member(self, castoff: Castoff, jobs: LocalJobs) -> None:
        program = "exit $((CASTOFF_ARRAY_INDEX % 2 * 3))"
        run = jobs.submit("--name", "few", "--set", "array={count: 3}", sh=program)
        jobs.wait(run)
        output = castoff("status", "few").stdout
        assert "members    2/3 done, 1 failed\n" in output
        table = columns(output.split("\n\n")[1])
        assert table[0] == ["member", "state", "code", "attempts", "began", "took", "host"]
        assert [row[:4] for row in table[1:]] == [
            ["0", "done", "0", "1"],
            ["1", "failed", "3", "1"],
            ["2", "done", "0", "1"],
        ]
        failures = output.split("\n\n")[2].splitlines()
        assert failures[0].startswith("attempt    1.0  failed after ")
        assert failures[1].endswith(" failed first: exit code 3") and "rank 0 on " in failures[1]
        assert failures[2:] == [f"           logs in {run.path}/logs/1.0"]

    def test_a_silent_member_is_named(self, castoff: Castoff, tmp_path: Path) -> None:
        made = Made(tmp_path, members=3)
        (made.run.path / "job.sh").touch()
        with made.alive():
            for member, ago in enumerate((1, 700, 2)):
                made.attempt(f"{member}.0")
                log = made.run.path / f"logs/{member}.0/rank-00000.log"
                log.parent.mkdir(parents=True, exist_ok=True)
                log.touch()
                os.utime(log, (time.time() - ago,) * 2)
            answer = castoff("status", made.run.path)
        _, _, silent = answer.stdout.split("\n\n")
        assert re.match(r"attempt    1\.0  running for .*, no output for 11m, began ", silent)
        assert silent.count("attempt ") == 1
        assert f"`castoff stacks {made.run.id} --member 1` shows where its ranks are\n" in silent

    def test_many_are_grouped(self, castoff: Castoff, tmp_path: Path) -> None:
        made = Made(tmp_path, members=200)
        (made.run.path / "job.sh").touch()
        for number in range(120):
            made.attempt(f"{number}.0", "failed" if number % 10 == 9 else "done", 3 * (number % 10 == 9))
            if number % 10 == 9:
                made.write(f"attempts/{number}.0/failure.json", {"code": 3, "rank": 1, "host": "n1"})
        with made.alive():
            made.attempt("120.0")
            answer = castoff("status", made.run.path)
        head, table, failures = answer.stdout.split("\n\n")
        assert "members    108/200 done, 12 failed, 1 running, 79 pending" in head
        assert columns(table) == [
            ["state", "code", "count", "members"],
            ["done", "0", "108", "0-8,10-18,20-28,30-38,40-48,50-58,60-68,70-78,80-88,90-98,100-108,…"],
            ["failed", "3", "12", "9,19,29,39,49,59,69,79,89,99,109,119"],
            ["running", "-", "1", "120"],
            ["pending", "-", "79", "121-199"],
        ]
        assert failures.count("rank 1 on n1 failed first: exit code 3") == 5
        assert answer.stderr == "castoff: 7 more failures are not shown; --json lists all of them\n"
        assert len(json.loads(castoff("status", made.run.path, "--json").stdout)["members"]) == 200

    def test_on_a_terminal(self, tmp_path: Path) -> None:
        made = Made(tmp_path, members=2)
        (made.run.path / "job.sh").touch()
        made.attempt("0.0", "done")
        made.attempt("1.0", "failed", 3)
        output = on_terminal("castoff", "status", made.run.path, cwd=tmp_path).output
        assert re.search(r"\x1b\[32mdone *\x1b\[0m", output)
        assert re.search(r"\x1b\[1;31mfailed *\x1b\[0m", output)


class TestStatusInWords:
    def test_the_remaining_walltime_is_shown(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit("--walltime", "1h", sh="touch here; sleep 600")
        until((jobs.folder / "here").exists)
        output = castoff("status", run.path).stdout
        assert re.search(r"\nattempt    0  running for \d+s, (1h00m|59m) left, began 20", output)

    def test_silence_is_shown(self, castoff: Castoff, jobs: LocalJobs, until: Until) -> None:
        run = jobs.submit(
            sh='echo x; touch here; until [ -e more ]; do sleep 0.1; done; echo 1 >"$CASTOFF_METRICS_FILE"; '
            "touch there; sleep 600"
        )
        until((jobs.folder / "here").exists)
        assert "no output" not in castoff("status", run.path).stdout
        (log,) = run.path.glob("logs/0.0/rank-*.log")
        until(log.read_text)
        ago = time.time() - 125
        os.utime(log, (ago, ago))
        silent = castoff("status", run.path).stdout
        assert re.search(r"running for \d+s, no output for 2m, began 20", silent)
        assert f"`castoff stacks {run.id}` shows where its ranks are\n" in silent
        (attempt,) = json.loads(castoff("status", run.path, "--json").stdout)["members"][0]["attempts"]
        assert attempt["last_output"] == pytest.approx(ago)
        (jobs.folder / "more").touch()
        until((jobs.folder / "there").exists)
        assert "no output" not in castoff("status", run.path).stdout, "metrics are a sign as well"

    def test_a_clock_that_was_set_back(self, castoff: Castoff, tmp_path: Path) -> None:
        made = Made(tmp_path, time=4_000_000_000)
        (made.run.path / "job.sh").touch()
        made.attempt("0.0", "done")
        start = {"host": "here", "time": 4_000_000_000}
        made.write("attempts/0.0/start.json", start)
        output = castoff("status", made.run.path).stdout
        assert "attempt    0  done after 0s, began 20" in output and ", 0s ago\n" in output
        Index.of(os.environ).add(made.run, "x")
        assert columns(castoff("list").stdout)[1][5:7] == ["0s", "0s"]

    def test_a_run_that_can_be_resumed(self, castoff: Castoff, tmp_path: Path) -> None:
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        made.attempt("0.0", "resume", 75)
        assert castoff("status", made.run.path).stdout.splitlines()[3:5] == [
            "state      ended, resume (code 75)",
            "           it stopped early and can be resumed: castoff resubmit run",
        ]
        assert castoff("wait", made.run.path).returncode == 75

    def test_a_run_whose_files_disappear_meanwhile(self, castoff: Castoff, runs: list[RunDirectory]) -> None:
        shutil.rmtree(runs[3].path / "attempts")
        answer = castoff("status", runs[3].id)
        assert answer.returncode == 0 and "state      unknown" in answer.stdout
        (runs[3].path / "plan.json").unlink()
        assert castoff("status", runs[3].id).returncode == 0


class TestWatching:
    def test_in_one_place_on_a_terminal(self, index: Index, tmp_path: Path) -> None:
        """It ends as other verbs do, and what it has shown last stays."""
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        index.add(made.run, "made")

        def begin() -> None:
            made.attempt("0.0", "done")

        with made.alive():
            answer = on_terminal(
                "castoff",
                *("list", "--watch", "--interval", "1s"),
                cwd=tmp_path,
                env={"NO_COLOR": "1"},
                has_signals=True,
                then=[("pending", begin), (r"pending[\s\S]* done ", "\x03")],
            )
        assert answer.code in (130, -signal.SIGINT)
        first, *rest = answer.output.split("\x1b[3F")  # up to where it began
        assert rest and first.startswith("20") and ", every 1 s; Ctrl-C ends this" in first
        assert all(part.count("\n") >= 3 and "\x1b[2J" not in part for part in [first, *rest])
        assert "done" in rest[-1]

    def test_what_does_not_fit_is_counted(self, runs: list[RunDirectory], tmp_path: Path) -> None:
        interrupt = [(re.escape(shown_id(runs[-1])), "\x03")]
        words = ("castoff", "list", "--watch", "--all")
        answer = on_terminal(*words, cwd=tmp_path, columns=60, has_signals=True, then=interrupt)
        shown = re.sub(r"\x1b\[[0-9;]*[mKJF]", "", answer.output).splitlines()
        heading, note, *rows = shown[:39]
        assert ", every 2 s; Ctrl-C ends this" in heading and note == "65 lines do not fit above these"
        assert rows.pop() == "castoff: 3 columns hidden: code, took, members; a wider ter…"
        assert [row.split()[0] for row in rows] == [shown_id(run) for run in runs[-36:]]
        assert max(map(len, shown[:39])) <= 60

    def test_tables_one_after_the_other_where_it_is_no_terminal(
        self, castoff_command: Castoff, runs: list[RunDirectory], tmp_path: Path
    ) -> None:
        with watching(tmp_path, "--name", "causets") as lines:
            for _ in range(2):
                assert next(lines).endswith(", every 1 s; Ctrl-C ends this\n")
                assert next(lines).split() == HEADINGS
                table = [*itertools.takewhile(str.strip, lines)]
                assert len(table) == 20 + 1 and "castoff: 5 older runs" in table[-1]

    def test_with_json_what_has_changed(self, index: Index, tmp_path: Path) -> None:
        made = Made(tmp_path)
        (made.run.path / "job.sh").touch()
        index.add(made.run, "made")
        with made.alive(), watching(tmp_path, "--json") as lines:
            assert json.loads(next(lines))["state"] == "pending"
            made.attempt("0.0")
            assert json.loads(next(lines))["state"] == "running"

    def test_a_reader_that_has_gone(self, castoff: Castoff, runs: list[RunDirectory], tmp_path: Path) -> None:
        words = "castoff list --watch --interval 1s | head -n 1; echo ${PIPESTATUS[0]}"
        done = subprocess.run(["bash", "-c", words], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "1" and done.stderr == ""

    def test_of_none(self, tmp_path: Path) -> None:
        with watching(tmp_path) as lines:
            assert [next(lines) for _ in range(2)][
                1
            ] == "castoff: no runs yet; --scan FOLDER finds those in a folder\n"


@contextlib.contextmanager
def watching(folder: Path, *words: str) -> Iterator[Iterator[str]]:
    """The lines of a list that is watched."""
    command = ["castoff", "list", "--watch", "--interval", "1s", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield iter(process.stdout)
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode in (130, -signal.SIGINT) and errors == "\n"
