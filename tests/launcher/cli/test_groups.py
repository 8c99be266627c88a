"""The verbs that take a group: what they print of it, and how they end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

FILE = """
name: pipe
defaults: {ranks_per_node: 1}
jobs:
  good: {command: [sh, -c, "echo well >$CASTOFF_RUN_DIR/word"]}
  bad: {command: [sh, -c, "cat {good.dir}/word; test -e fixed"], after: {afterok: [good]}}
  last: {command: [echo, last], after: {afterok: [bad]}}
"""

pytestmark = pytest.mark.costly


@pytest.fixture
def pipe(castoff: Castoff, jobs: LocalJobs) -> Path:
    """The file of a group that is over: its second job failed."""
    file = jobs.job(FILE)
    answer = castoff("submit", file, "--site", "local")
    assert answer.returncode == 0, answer.stderr
    shown = r"good: good-\S+, job local-\d+ \(local\)\nbad: .*\nlast: .*\ngroup +pipe-\S+\nnode-hours .*\n"
    assert re.fullmatch(shown, answer.stdout), answer.stdout
    waited = castoff("wait", "pipe")
    assert waited.returncode == 1
    assert sorted(line.split(": ")[1] for line in waited.stdout.splitlines()) == [
        "cancelled",
        "done",
        "failed",
    ]
    return file


def test_a_whole_life(castoff: Castoff, pipe: Path) -> None:
    lines = castoff("status", "pipe").stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["group", "file", "submitted", "state", "to"]
    assert lines[3] == "state      1 of 3 jobs done, 1 failed, 1 cancelled"
    tree = [re.split(r"  +", line.replace("   └─", "└─"))[:2] for line in lines[7:]]
    assert tree == [["good", "done"], ["└─ bad", "failed"], ["└─ last", "cancelled"]]
    (facts,) = objects(castoff("status", "pipe", "--json").stdout)
    assert [(job["name"], job["after"], job["run"]["ending"]) for job in facts["jobs"]] == [
        ("good", {}, "done"),
        ("bad", {"afterok": ["good"]}, "failed"),
        ("last", {"afterok": ["bad"]}, "cancelled"),
    ]
    listed = objects(castoff("list", "--name", "pipe", "--json").stdout)
    assert [row["name"] for row in listed] == ["good", "bad", "last"]
    assert {row["group"] for row in listed} == {facts["group"]}
    page = castoff("report", "pipe").stdout
    assert "1 of 3 jobs done" in page and 'src="data:image/svg+xml;base64,' in page
    assert "pipe: is a group of 3 runs; name one of them: good-" in castoff("logs", "pipe:0").stderr
    (pipe.parent / "fixed").touch()
    answer = castoff("resubmit", "pipe", "--json")
    (again,) = objects(answer.stdout)
    assert [job["name"] for job in again["jobs"]] == ["bad", "last"] and again["left"] == {"good": "done"}
    assert castoff("wait", "pipe").returncode == 0
    assert "[0] well" in castoff("logs", "bad").stdout
    nothing = castoff("resubmit", "pipe")
    assert nothing.returncode == 1
    assert nothing.stderr.endswith("there is nothing to start: good (done), bad (done), last (done)\n")


def test_a_selection(castoff: Castoff, pipe: Path) -> None:
    (pipe.parent / "fixed").touch()
    answer = castoff("submit", pipe, "--site", "local", "--from", "bad", "--set", "last.env.A=1")
    assert answer.returncode == 0, answer.stderr
    assert castoff("wait", "pipe").returncode == 0
    assert "2 of 2 jobs done" in castoff("status", "pipe").stdout
    one = castoff("submit", pipe, "--site", "local", "--only", "last", "--json")
    assert json.loads(one.stdout)["id"].startswith("last-"), "a run like any other, in no group"


def test_logs_of_all(castoff: Castoff, pipe: Path) -> None:
    answer = castoff("logs", "pipe")
    headings = re.findall(r"^=== (.*), (\w+)-\S+ ===$", answer.stdout, re.M)
    assert headings == [("good: done", "good"), ("bad: failed", "bad"), ("last: cancelled", "last")]
    of_bad = answer.stdout[answer.stdout.index("=== bad") : answer.stdout.index("=== last")]
    assert "[0] well\n" in of_bad and " failed first: exit code 1 ---\n" in of_bad
    assert re.fullmatch(
        r"castoff: last-\S+: cancelled before it began, so it has no logs: .*\n", answer.stderr
    )
    assert answer.returncode == 0
    places = objects(castoff("logs", "pipe", "--json").stdout)
    assert [(one["job"], len(one["attempts"])) for one in places] == [("good", 1), ("bad", 1), ("last", 0)]
    for words, option in (
        (["--rank", "0"], "--rank"),
        (["a=1"], "--member"),
        (["--attempt", "0"], "--attempt"),
    ):
        wrong = castoff("logs", "pipe", *words)
        assert f"{option} takes one run, and pipe is a group of runs" in wrong.stderr
    (pipe.parent / "castoff-runs" / places[1]["id"] / "logs" / "job-0.log").unlink()
    assert castoff("logs", "pipe", "--tail", "1").stdout.count("\n") > 3


def test_all_jobs_are_followed(castoff: Castoff, jobs: LocalJobs) -> None:
    answer = castoff("submit", "-f", jobs.job(FILE.replace("test -e fixed", "exit 3")), "--site", "local")
    assert answer.returncode == 3
    lines = answer.stdout.splitlines()
    assert "[bad:0] well" in lines and any(line.startswith("--- bad: rank 0 on ") for line in lines)
    ends = [line.split(": ", 3)[1:3] for line in answer.stderr.splitlines()]
    first, *others, all_of_them = [(run.partition("-")[0], words.partition(";")[0]) for run, words in ends]
    assert first == ("good", "done")
    # On a busy machine, the last job's end may be noticed before the one that led to it.
    assert sorted(others) == [("bad", "failed"), ("last", "cancelled")]
    assert all_of_them == ("pipe", "1 of 3 jobs done, 1 failed, 1 cancelled")
    again = castoff("logs", "-f", "pipe", "--json")
    assert again.returncode == 3
    events = [(one["event"], one["job"]) for one in objects(again.stdout)]
    assert [job for event, job in events if event == "end"] == ["good", "bad", "last"]
    assert ("failure", "bad") in events


def test_ctrl_c_leaves_a_group(jobs: LocalJobs) -> None:
    one = "one: {command: [sh, -c, 'echo begun; exec sleep 600'], ranks_per_node: 1}"
    jobs.job(f"jobs:\n  {one}\n  two: {{command: [x], after: {{afterok: [one]}}}}\n", "long.yaml")
    answer = on_terminal(
        *("castoff", "submit", "-f", "long.yaml", "--site", "local"),
        cwd=jobs.folder,
        has_signals=True,
        then=[(r"\[one:0\]\S* begun", "\x03")],
    )
    again = r"`castoff logs -f (long-\S+)` follows it again, `castoff cancel \1` ends it\n$"
    assert answer.code == 130
    assert re.search(r"castoff: long-\S+ was not stopped: " + again, answer.output)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "-f", "--json"], "--follow excludes --json: drop one"),
        (["render"], "pipe.yaml holds several jobs; choose one by --only: good, bad, last"),
        (["submit", "--only", "god"], "--only god: is not a job of pipe; did you mean good?"),
        (["submit", "-J", "x"], "--name: is for a file with one job; each of several has its own"),
        (["submit", "--set", "last.after.afterok=[bd]"], "is bd, which is neither a job of this group"),
    ],
)
def test_what_is_refused(castoff: Castoff, tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "pipe.yaml").write_text(FILE)
    answer = castoff(*words, "pipe.yaml", "--site", "local", cwd=tmp_path)
    assert answer.returncode == 2 and message in answer.stderr, answer.stderr
    assert not (tmp_path / "castoff-runs").exists()


def test_a_dry_run_shows_each(castoff: Castoff, tmp_path: Path) -> None:
    (tmp_path / "pipe.yaml").write_text(FILE)
    answer = castoff("submit", "pipe.yaml", "--site", "slurm", "--dry-run", cwd=tmp_path)
    assert answer.returncode == 0
    assert re.findall(r"castoff: (\w+):\n", answer.stderr) == ["good", "bad", "last"]
    assert '--dependency=afterok:good "$CASTOFF_RUN_DIR/job.sh"' in answer.stderr
    alone = castoff("render", "pipe.yaml", "--only", "bad", "--site", "slurm", cwd=tmp_path).stdout
    assert alone in answer.stdout
