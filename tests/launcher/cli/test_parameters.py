"""Members with parameters on the command line: what is shown before and after, and how they are selected."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable

import click
import pytest

from castoff import JobSpec
from castoff.launcher.cli.list import Matching
from castoff.launcher.cli.logs import command as logs
from castoff.launcher.cli.offers import complete_parameters, complete_runs_and_parameters
from castoff.launcher.cli.report import command as report
from castoff.launcher.history.progress import Progress
from castoff.launcher.logs.silence import Silences
from castoff.launcher.planning.parameters import notes
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.screen.detail import detail_of
from castoff.launcher.screen.page import lines
from castoff.launcher.status.overview import Overview
from castoff.launcher.status.watch import status

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

JOB = """
name: sweep-{lr}
command: [sh, -c, 'echo "loss $0"; echo "loss 0.$1$1 acc $0"; [ "$0$1" != 0.11 ]', "{lr}", "{seed}"]
env: {OUT: "out-{seed}"}
array: {parameters: {lr: [0.1, 1e-2], seed: [0, 1]}}
ranks_per_node: 1
"""


@pytest.fixture
def sweep(jobs: LocalJobs) -> RunDirectory:
    """A run of four members, of which the second fails."""
    run = jobs.submit(jobs.job(JOB))
    jobs.wait(run)
    return run


class TestRender:
    def test_members(self, castoff: Castoff, jobs: LocalJobs) -> None:
        job = jobs.job(JOB.replace("[sh, -c, ", "[train, ").replace("'echo", "'x' #"))
        job = jobs.job("command: [train, '{lr}', '{{lr}}']\nenv: {A: '{seed}'}\n" + JOB[JOB.index("array") :])
        answer = castoff("render", job, "--site", "slurm", "--members")
        assert answer.stdout.splitlines() == [
            "member  lr    seed  runs",
            "0       0.1   0     A=0 train 0.1 '{lr}'",
            "1       0.1   1     A=1 train 0.1 '{lr}'",
            "2       1e-2  0     A=0 train 1e-2 '{lr}'",
            "3       1e-2  1     A=1 train 1e-2 '{lr}'",
        ]
        *_, last = objects(castoff("render", job, "--site", "slurm", "--members", "--json").stdout)
        assert last == {
            "member": 3,
            "name": None,
            "parameters": {"lr": 0.01, "seed": 1},
            "command": ["train", "1e-2", "{lr}"],
            "env": {"A": "1"},
            "workdir": None,
        }

    def test_names_and_folders(self, castoff: Castoff) -> None:
        words = ["--name", "try-{a}", "--workdir", "in {a}", "--set", "array.parameters.a=[1]"]
        answer = castoff("render", "--site", "slurm", "--members", *words, "--", "train", "{a}")
        assert answer.stdout == "member  name   a  runs\n0       try-1  1  cd './in 1' && train 1\n"

    def test_commands(self, castoff: Castoff, jobs: LocalJobs) -> None:
        (jobs.folder / "cmds.txt").write_text("# comment\nsleep 1 && echo 'a b'\n\ndate\n")
        words = ["--site", "slurm", "--members", "--set", "array.commands=cmds.txt"]
        answer = castoff("render", *words, cwd=jobs.folder)
        assert answer.stdout == "member  runs\n0       sleep 1 && echo 'a b'\n1       date\n"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "train: it has no array; array.parameters gives members values of their own"),
            (["--set", "array.count=2"], "train: all its members run the same; array.parameters gives"),
        ],
    )
    def test_members_that_do_not_differ(self, words: list[str], message: str, castoff: Castoff) -> None:
        answer = castoff("render", "--site", "slurm", "--members", *words, "--", "train")
        assert answer.returncode == 1 and answer.stderr.startswith(f"castoff: {message}")


class TestStatus:
    def test_the_table_shows_names_and_parameters(self, castoff: Castoff, sweep: RunDirectory) -> None:
        lines = castoff("status", "sweep").stdout.splitlines()
        table = [line.split()[:5] for line in lines[lines.index("") + 1 :][:5]]
        assert table == [
            ["member", "name", "lr", "seed", "state"],
            ["0", "sweep-0.1", "0.1", "0", "done"],
            ["1", "sweep-0.1", "0.1", "1", "failed"],
            ["2", "sweep-1e-2", "1e-2", "0", "done"],
            ["3", "sweep-1e-2", "1e-2", "1", "done"],
        ]
        assert lines[-1] == "           lr=0.1, seed=1"

    def test_selected_members(self, castoff: Castoff, sweep: RunDirectory) -> None:
        answer = castoff("status", "sweep", "lr=.01,seed=1")
        assert "member     sweep-1e-2: lr=1e-2, seed=1\nattempt    0  done" in answer.stdout
        (newest,) = objects(castoff("status", "seed=0", "--json").stdout)
        assert [member["member"] for member in newest["members"]] == [0, 2]
        assert newest["members"][1]["parameters"] == {"lr": 0.01, "seed": 0}
        assert newest["members"][1]["name"] == "sweep-1e-2"

    def test_mistakes(self, castoff: Castoff, sweep: RunDirectory) -> None:
        for words, message in (
            ("lrr=1", "no parameter lrr; did you mean lr?"),
            ("width=1", "no parameter width; there are: lr, seed"),
            ("lr=3", "no member has lr=3; there are 0.1, 1e-2"),
        ):
            answer = castoff("status", "sweep", words)
            assert (answer.returncode, answer.stderr) == (1, f"castoff: {sweep.id}: {message}\n")

    def test_a_run_without_parameters(self, castoff: Castoff, jobs: LocalJobs) -> None:
        run = jobs.submit("--name", "plain", sh="true")
        jobs.wait(run)
        answer = castoff("logs", "plain", "lr=1")
        message = f"castoff: {run.id}: its members have no parameters, so lr selects none\n"
        assert (answer.returncode, answer.stderr) == (1, message)


class TestOtherVerbs:
    def test_logs(self, castoff: Castoff, sweep: RunDirectory) -> None:
        assert (
            castoff("logs", "sweep", "lr=0.010,seed=1", "--rank", "0").stdout
            == "loss 1e-2\nloss 0.11 acc 1e-2\n"
        )
        both = objects(castoff("logs", "sweep", "seed=1", "--json").stdout)
        assert [attempt["member"] for attempt in both[0]["attempts"]] == [1, 3]
        newest = castoff("logs", "seed=1", "lr=1e-2", "--rank", "0")
        assert newest.stdout == "loss 1e-2\nloss 0.11 acc 1e-2\n"

    def test_resubmit(self, castoff: Castoff, jobs: LocalJobs, sweep: RunDirectory) -> None:
        done = castoff("resubmit", "sweep", "lr=0.01").stderr
        assert done == f"castoff: {sweep.id}: members 2-3 are done; --include-done restarts them\n"
        answer = castoff("resubmit", "sweep", "seed=1", "--json")  # of these two, one is done
        assert json.loads(answer.stdout)["attempts"] == {"1": 1}
        jobs.wait(sweep)
        first, second = (sweep.path / "attempts" / f"1.{number}" / "parameters.json" for number in (0, 1))
        assert first.read_text() == second.read_text() == '{"lr": 0.1, "seed": 1}\n'

    def test_results_of_what_was_printed(self, castoff: Castoff, sweep: RunDirectory) -> None:
        pattern = r"loss (?P<loss>\S+) acc (?P<acc>\S+)"
        answer = castoff("results", "sweep", "seed=1", "--pattern", pattern, "--csv")
        rows = [*csv.DictReader(io.StringIO(answer.stdout))]
        assert [(row["member"], row["lr"], row["loss"], row["acc"]) for row in rows] == [
            ("1", "0.1", "0.11", "0.1"),
            ("3", "0.01", "0.11", "0.01"),
        ]
        by = castoff("results", "sweep", "--pattern", pattern, "--by", "acc", "--json")
        best = objects(by.stdout)[0]
        assert best["parameters"] == {"lr": 0.1, "seed": 0} and best["best"] == {"step": None, "value": 0.1}

    def test_results_in_a_file_of_each_member(
        self, castoff: Castoff, jobs: LocalJobs, sweep: RunDirectory
    ) -> None:
        (jobs.folder / "out-1e-2-0.txt").write_text("score = 5\nscore = 7")
        words = ["--from", "out-{lr}-{seed}.txt", "--pattern", r"score = (\d)"]
        answer = castoff("results", "sweep", *words)
        assert answer.stdout.splitlines()[0].split() == [
            "member",
            "state",
            "lr",
            "seed",
            "value",
            "took",
            "why",
        ]
        assert answer.stdout.splitlines()[1].split()[:5] == ["2", "done", "0.01", "0", "7"]
        assert "castoff: 3 of 4 members have no number: member 0 has no file out-0.1-0.txt\n" in answer.stderr

    def test_mistakes_in_patterns(self, castoff: Castoff, sweep: RunDirectory) -> None:
        lacks = "4 of 4 members have no number: member 0 has"
        for words, message in (
            (["--from", "x"], "--from needs --pattern REGEX"),
            (["--pattern", "("], "--pattern (: is not a regular expression: missing )"),
            (["--pattern", "l(o)ss"], f"{lacks} 'o' as value, which is not a number"),
            (
                ["--pattern", "loss"],
                f"{lacks} 'loss' as value, which is not a number: put parentheses around",
            ),
            (["--pattern", "none"], f"{lacks} no such line in "),
        ):
            assert f"castoff: {message}" in castoff("results", "sweep", *words).stderr

    def test_a_member_without_a_log(self, castoff: Castoff, sweep: RunDirectory) -> None:
        shutil.rmtree(sweep.log_folder)
        said = castoff("results", "sweep:2", "--pattern", r"loss (\S+)").stderr
        assert "castoff: 1 of 1 members have no number: member 2 has no log\n" in said

    def test_the_page(self, castoff: Castoff, sweep: RunDirectory) -> None:
        page = castoff("report", "sweep").stdout
        assert ">lr<" in page and "member 2" in page
        part = castoff("report", "sweep", "lr=0.1").stdout
        assert "member 1" in part and "member 2" not in part
        newest = castoff("report", "lr=0.1")
        assert newest.stderr == f"castoff: {sweep.id}: the newest run\n"
        assert "member 1" in newest.stdout and "member 2" not in newest.stdout

    def test_lists(self, castoff: Castoff, jobs: LocalJobs, sweep: RunDirectory) -> None:
        jobs.wait(jobs.submit("--name", "plain", sh="true"))
        assert [run["name"] for run in objects(castoff("list", "--with", "lr=0.01", "--json").stdout)] == [
            "sweep"
        ]
        assert castoff("list", "--with", "lr=0.01", "--with", "seed=4").stderr == "castoff: no such runs\n"
        heading, *rows = [re.split("  +", line) for line in castoff("list").stdout.splitlines()]
        assert heading[-3:] == ["members", "parameters", "why"]
        assert [row[-2] for row in rows] == ["lr=0.1,1e-2 seed=0,1", "-"]
        heading, row = [
            re.split("  +", line) for line in castoff("list", "--with", "seed=1").stdout.splitlines()
        ]
        assert (heading[-3:-1], row[-3]) == (["matching", "parameters"], "1/2 done, 1 failed")
        both, alone = objects(castoff("list", "--json").stdout)
        assert "parameters" not in alone and "matching" not in both
        found = {"lr": {"count": 2, "values": [0.1, 0.01]}, "seed": {"count": 2, "values": [0, 1]}}
        assert both["parameters"] == found
        (one,) = objects(castoff("list", "--with", "lr=0.01", "--json").stdout)
        assert one["matching"] == {"members": 2, "counts": {"done": 2}}
        wrong = castoff("list", "--with", "lr")
        assert wrong.stderr == "castoff: lr: members are selected as in lr=1e-3,seed=2\n"

    def test_lists_on_a_terminal(self, jobs: LocalJobs, sweep: RunDirectory) -> None:
        for columns, shown in ((90, "lr=0.1,1e-2 "), (140, "lr=0.1,1e-2 seed=0,1")):
            output = on_terminal("castoff", "list", cwd=jobs.folder, columns=columns).output
            plain = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
            assert shown in plain[1] and max(map(len, plain)) <= columns

    def test_a_scan_finds_them_again(self, castoff: Castoff, jobs: LocalJobs, sweep: RunDirectory) -> None:
        before = objects(castoff("list", "--json").stdout)
        Index.of(os.environ).path.unlink()
        castoff("list", "--scan", jobs.folder)
        assert objects(castoff("list", "--json").stdout) == before

    def test_lists_read_few_members(
        self, castoff: Castoff, sweep: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a large run that is over, only the number of matching members is known."""
        castoff("list")
        (row,) = Overview(Index.of(os.environ)).rows
        monkeypatch.setattr("castoff.launcher.cli.list._READ", 3)
        assert Matching.among(row, frozenset({1, 3}), None) == Matching(2, {})
        assert Matching(2, {}).words == "2 members"

    def test_verbs_for_whole_runs(self, castoff: Castoff, sweep: RunDirectory) -> None:
        for words in (["sweep", "lr=0.1"], ["sweep:1"]):
            answer = castoff("stop", *words)
            which = f"{words[-1]}: selects members, but castoff stop is for whole runs"
            assert (answer.returncode, answer.stderr) == (
                1,
                f"castoff: {which}; `castoff cancel` ends members\n",
            )

    def test_numbers(self, castoff: Castoff, sweep: RunDirectory) -> None:
        (some,) = objects(castoff("status", "sweep:0,2-3", "--json").stdout)
        assert [member["member"] for member in some["members"]] == [0, 2, 3]
        assert castoff("logs", "sweep:2", "--rank", "0").stdout == "loss 1e-2\nloss 0.00 acc 1e-2\n"
        assert [row["member"] for row in objects(castoff("results", "sweep:1", "--json").stdout)] == [1]
        for verb in ("status", "logs", "results", "report", "resubmit", "cancel"):
            wrong = castoff(verb, "sweep:4")
            message = f"castoff: {sweep.id}: no member 4; members are 0 to 3\n"
            assert (wrong.returncode, wrong.stderr) == (1, message), verb

    def test_what_is_wrong_with_numbers(self, castoff: Castoff, sweep: RunDirectory) -> None:
        for verb in ("cancel", "logs", "status"):
            wrong = castoff(verb, "sweep:3-")
            assert wrong.returncode == 1, verb
            assert wrong.stderr.startswith("castoff: sweep:3-: what follows the colon holds '3-', but takes ")

    def test_cancel(self, castoff: Castoff, jobs: LocalJobs, until: Callable[..., None]) -> None:
        words = ["--name", "two", "--set", "array.parameters.a=[0, 1]", "-n", "1"]
        run = jobs.submit(*words, "--", "sh", "-c", '[ "$0" = 0 ] || exec sleep 600', "{a}")
        until((run.path / "attempts" / "1.0" / "launched").exists)
        answer = castoff("cancel", "two", "a=1")
        assert answer.returncode == 0, answer.stderr
        assert [member["ending"] for member in jobs.wait(run)["members"]] == ["done", "cancelled"]

    def test_top_shows_what_a_member_was_started_with(self, sweep: RunDirectory) -> None:
        detail = detail_of(status(sweep), None, lambda *_: Progress(), Silences())
        words = ["".join(span.text for span in line) for line in lines(detail, 0.0, 80, 40)]
        assert "          lr=0.1, seed=1" in words


def test_completion(sweep: RunDirectory) -> None:
    context = click.Context(logs)
    context.params["run"] = "sweep"
    (selectors,) = (one for one in logs.params if one.name == "selectors")
    words = {
        word: [one.value for one in complete_parameters(context, selectors, word)]
        for word in ("", "lr=", "s")
    }
    assert words == {"": ["lr=", "seed="], "lr=": ["lr=0.1", "lr=1e-2"], "s": ["seed="]}
    context = click.Context(report)
    context.params["runs"] = ("other", "sweep", "seed=0")
    (runs,) = (one for one in report.params if one.name == "runs")
    offered = [one.value for one in complete_runs_and_parameters(context, runs, "s")]
    assert offered == [sweep.id, "seed="]
    context.params["runs"] = ()
    assert [one.value for one in complete_runs_and_parameters(context, runs, "s")][-1] == "seed="


def test_a_job_that_uses_none_says_so(castoff: Castoff, jobs: LocalJobs) -> None:
    job = jobs.job("command: [sh, -c, 'cat $CASTOFF_PARAMETERS']\narray: {parameters: {a: [x], b: [1]}}")
    answer = castoff("submit", job, "--site", "local", cwd=jobs.folder)
    note = "castoff: the job does not use {a} or {b}: its program gets them in the file CASTOFF_PARAMETERS\n"
    assert note in answer.stderr
    (run,) = jobs.runs()
    jobs.wait(run)
    assert jobs.log(run) == '[0] {"a": "x", "b": 1}'


def test_what_shells_read_is_reported(castoff: Castoff, jobs: LocalJobs) -> None:
    job = jobs.job("command: [sh, -c, 'true {a} ${b} {b}']\narray: {parameters: {a: [x, 'y z'], b: [1]}}")
    said = castoff("submit", job, "--site", "local", cwd=jobs.folder).stderr
    assert "castoff: ${b} stays as it is: write {b}, without $, for the parameter\n" in said
    assert "castoff: sh reads {a} as shell text, such as 'y z': " in said
    assert said.count("as shell text") == 1
    (run,) = jobs.runs()
    jobs.wait(run)


def test_launch_runs_one_member(castoff: Castoff, jobs: LocalJobs) -> None:
    job = jobs.job(JOB)
    which = (
        "castoff: name one of the 4 members by --member, 0 to 3; castoff render --members lists what they run"
    )
    assert castoff("launch", job).stderr.splitlines()[-1] == which
    assert (
        "castoff: there is no member 4: name one of the 4" in castoff("launch", job, "--member", "4").stderr
    )
    assert "[0] loss 0.00 acc 1e-2\n" in castoff("launch", job, "--member", "2").stdout
    unused = castoff("launch", "--set", "array.parameters.a=[1]", "--member", "0", "--", "true")
    assert (
        "castoff: the program reads CASTOFF_PARAMETERS, which only castoff submit writes\n" in unused.stderr
    )


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        ("""echo '{{"step": 1, "x": {a}}}'""", True),
        ("""echo '{"step": 1, "x": {a}}'""", False),
        ("""python -c 'print(f"{{a}} {a}")'""", False),
        ("""python -c "print(f'{{"a": {a}}}')" """, False),
    ],
)
def test_json_in_doubled_braces_is_reported(text: str, is_noted: bool) -> None:
    spec = JobSpec.of({"command": ["bash", "-c", text], "array": {"parameters": {"a": [1]}}})
    assert any("stay doubled" in note for note in notes(spec)) is is_noted
