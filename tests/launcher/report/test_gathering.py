"""What a page shows of runs that were run here, and what castoff report and results print."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.report.gathering import Wish, gather
from castoff.launcher.report.page import page
from castoff.launcher.runs.run import RunDirectory
from tests import patience

from ..conftest import Castoff, LocalJobs, objects
from ..terminal import on_terminal

SWEEP = """
import json, os
member = int(os.environ["CASTOFF_ARRAY_INDEX"])
with open(os.environ["CASTOFF_METRICS_FILE"], "a") as file:
    print(json.dumps({"parameters": {"model": {"width": 8 * member}, "seed": 0}}), file=file)
    for step in range(4):
        line = {"step": step, "val/loss": abs(step - 2) + 1 / (1 + member), "val/f1": member / (1 + step)}
        print(json.dumps(line), file=file)
raise SystemExit(member == 1)
"""

FAILS = """
import os, sys, time
print("\\x1b[31mrank", os.environ["RANK"], "was here\\x1b[0m", flush=True)
open(os.environ["RANK"], "w")
while not (os.path.exists("0") and os.path.exists("1")):
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    raise ValueError("</pre><script>bad()</script>")
time.sleep(600)
"""

FUNCTIONS = """
import json, os
import castoff

def train(width):
    with open(os.environ["CASTOFF_METRICS_FILE"], "a") as file:
        file.write(json.dumps({"val/loss": width}) + "\\n")

if __name__ == "__main__":
    for job in castoff.executor({}, "local", "runs").map_array(train, [3, 1, 2]):
        job.result()
"""


@pytest.fixture
def sweep(jobs: LocalJobs) -> RunDirectory:
    """An array of three, of which one failed."""
    run = jobs.submit("--name", "sweep", "--set", "array.count=3", "-n", "1", "--", "python", "-c", SWEEP)
    jobs.wait(run)
    return run


SECRET_JOB = r"""
name: secretive
ranks_per_node: 1
env: {HF_TOKEN: leak-1, DB_PASSWORD: "leak-2\nleak-3", MAX_TOKENS: 512, wandb_api_key: "it's leak-4"}
setup: ["export MY_SECRET='leak-5 leak-6'", "export https_proxy=http://me:leak-7@proxy:80"]
command: [python, -c, "import json, os; print(json.dumps({'parameters': {'api_key': 'leak-' + '8',
  'key_dim': 64}}), file=open(os.environ['CASTOFF_METRICS_FILE'], 'a'))", --auth-token, leak-9,
  --api-key=leak-10]
# DB_PASSWORD: leak-11
"""


class TestReport:
    def test_shows_no_values_whose_names_look_like_secrets(
        self, jobs: LocalJobs, castoff: Castoff, tmp_path: Path
    ) -> None:
        job, page = tmp_path / "job.yaml", tmp_path / "page.html"
        job.write_text(SECRET_JOB)
        run = jobs.submit(job)
        jobs.wait(run)
        page.touch(mode=0o644)
        assert castoff("report", run.path, "-o", page).returncode == 0
        assert page.stat().st_mode & 0o777 == 0o600
        text = page.read_text()
        assert re.findall("leak-[0-9]+", text) == []
        for shown in ("HF_TOKEN", "MAX_TOKENS=512", "key_dim", "http://me:***@proxy:80"):
            assert shown in text

    def test_of_a_rank_that_failed(self, jobs: LocalJobs) -> None:
        run = jobs.submit("-n", "2", "--", "python", "-c", FAILS)
        jobs.wait(run)
        found = gather(run, Wish())
        (failure,) = found.failures
        assert failure.text.startswith("Traceback (most recent call last):")
        assert failure.text.endswith("ValueError: </pre><script>bad()</script>")
        assert failure.log == str(run.log_folder / "0.0" / "rank-00001.log")
        assert [(one.title, one.text) for one in failure.others] == [("rank-00000", "rank 0 was here")]
        ((attempt,),) = (one.attempts for one in found.members)
        assert [phase.name for phase in attempt.phases] == ["queued", "setup", "running"]
        assert [one.ranks for one in attempt.hosts] == [range(2)]
        assert attempt.usage is not None and attempt.usage.source == "castoff"
        text = page(found)
        assert "&lt;/pre&gt;&lt;script&gt;bad()&lt;/script&gt;" in text
        assert "<script" not in text and "\x1b" not in text

    def test_how_busy_devices_were_as_the_program_reports(self, jobs: LocalJobs) -> None:
        line = 'import time; print({"step": 1, "time": time.time(), "gpu_utilization": 85})'
        command = f"python -c '{line}' | tr \\' '\"' >>\"$CASTOFF_METRICS_FILE\""
        run = jobs.submit(sh=command)
        jobs.wait(run)
        found = gather(run, Wish())
        usage = found.members[0].attempts[0].usage
        assert usage is not None and usage.device_utilization == 0.85
        assert "<td>85%</td>" in re.sub(r"<td[^>]*>", "<td>", page(found))

    def test_the_newest_profile_of_the_trainer(self, jobs: LocalJobs) -> None:
        shares = '"seconds": 1.5, "compute": 0.5, "communication": 0, "data": 0.25, "idle": 0.25'
        ranks = f'"ranks": [{{"rank": 0, {shares}}}], "operations_of": 0, "operations": []'
        line = f'{{"first_step": 7, "steps": 3, "folder": "/trained/profile", {ranks}}}'
        run = jobs.submit(sh=f"echo '{line}' >${{CASTOFF_METRICS_FILE%/*}}/profile.json")
        jobs.wait(run)
        text = page(gather(run, Wish()))
        assert "Steps 7 to 9 of attempt 0." in text
        assert "<code>/trained/profile</code>" in text
        run.path.joinpath("attempts", "0.0", "profile.json").write_text(line[:-1])
        assert gather(run, Wish()).profile is None, "cut off"

    def test_of_setup_that_failed(self, jobs: LocalJobs) -> None:
        run = jobs.submit("--set", "setup=[echo loading, 'false']", sh="true")
        jobs.wait(run)
        (failure,) = gather(run, Wish()).failures
        assert failure.text == "loading"
        assert failure.why == ["setup ended the job with code 1, at this line: false"]

    def test_of_ranks_that_hung(self, jobs: LocalJobs) -> None:
        """As a script records it; tests/cluster has ranks that do hang."""
        run = jobs.submit(sh="exit 1")
        jobs.wait(run)
        jobs.until_tidy(run)
        record = run.path / "attempts" / "0.0" / "failure.json"
        facts = {"code": 1, "rank": 3, "host": "n1", "reason": "hang"}
        record.write_text(json.dumps(facts))
        stacks = run.log_folder / "0.0" / "stacks"
        stacks.mkdir(exist_ok=True)
        for rank in range(20):
            (stacks / f"rank-{rank:05d}.txt").write_text(f"File train.py, line {rank}\n")
        (failure,) = gather(run, Wish()).failures
        assert failure.hung and failure.text.startswith("File train.py, line 3\n")
        assert [one.title for one in failure.others][:4] == [f"rank-0000{rank}" for rank in (0, 1, 2, 4)]
        assert (len(failure.others), failure.others_left_out) == (16, 3)
        text = page(gather(run, Wish()))
        assert "The other ranks&#39; stacks" in text and "3 more are in the run directory." in text

    def test_of_an_array(self, sweep: RunDirectory) -> None:
        found = gather(sweep, Wish())
        assert found.rule is not None and found.rule.metric == "val/loss"
        assert [plot.title for plot in found.plots] == ["val/loss", "val/f1"]
        for plot in found.plots:
            assert [one.label for one in plot.curves] == ["2: width=16", "1: width=8", "0: width=0"]
        assert [one.attempt for one in found.failures] == ["1.0"]
        assert "Members are ordered by val/loss, smallest first" in page(found)
        by_f1 = gather(sweep, Wish("val/f1", False))
        assert [one.label[0] for one in by_f1.plots[0].curves] == ["0", "1", "2"]
        with pytest.raises(CastoffError, match="--by f2: no member has reported it"):
            gather(sweep, Wish("f2"))

    def test_secrets_do_not_enter_it(self, jobs: LocalJobs) -> None:
        secret = "s3cret-of-somebody"
        run = jobs.submit("--set", "env_from=[TOKEN]", sh="true", env={"TOKEN": secret})
        text = page(gather(run, Wish()))
        assert "TOKEN" in text and secret not in text
        jobs.wait(run)
        assert secret not in page(gather(run, Wish()))

    def test_of_a_run_that_was_never_submitted(self, jobs: LocalJobs, castoff: Castoff) -> None:
        run = jobs.submit(sh="true")
        jobs.wait(run)
        for name in ("submission.json", "plan.json", "code.json", "job.yaml"):
            (run.path / name).write_text("{damaged")
        answer = castoff("report", run.path)
        assert answer.returncode == 0, answer.stderr
        assert "Nothing is known of the code." in answer.stdout

    def test_where_it_goes(self, sweep: RunDirectory, castoff: Castoff, tmp_path: Path) -> None:
        printed = castoff("report", sweep.id)
        assert printed.stdout.startswith("<!DOCTYPE html>") and printed.stdout.endswith("</html>\n")
        assert printed.stderr == ""
        assert castoff("report", "-o", "-").stdout.startswith("<!DOCTYPE html>")
        written = castoff("report", sweep.id, "-o", "a page.html")
        assert (written.returncode, written.stdout) == (0, "")
        assert written.stderr == f"castoff: wrote {tmp_path}/a page.html\n"
        assert (tmp_path / "a page.html").read_text().startswith("<!DOCTYPE html>")
        refused = castoff("report", sweep.id, "-o", "my page.pdf")
        assert refused.returncode == 2 and "HTML, not .pdf: -o 'my page.html'" in refused.stderr
        refused = castoff("report", sweep.id, "-o", "missing/page.html")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == "castoff: missing/page.html: cannot be written: No such file or directory\n"

    def test_a_terminal_gets_a_file(self, sweep: RunDirectory, tmp_path: Path) -> None:
        answer = on_terminal("castoff", "report", "sweep", cwd=tmp_path, columns=200)
        assert answer.code == 0 and f"castoff: wrote {tmp_path}/{sweep.id}.html" in answer.output
        assert "<html" not in answer.output
        assert (tmp_path / f"{sweep.id}.html").stat().st_size > 10_000


class TestResults:
    def test_in_a_table(self, sweep: RunDirectory, castoff: Castoff) -> None:
        answer = castoff("results", sweep.id)
        assert answer.returncode == 0, answer.stderr
        lines = [line.split()[:7] for line in answer.stdout.splitlines()]
        assert lines == [
            ["member", "state", "width", "best", "val/loss", "step", "last"],
            ["2", "done", "16", "0.333333", "2", "1.33333", lines[1][6]],
            ["1", "failed", "8", "0.5", "2", "1.5", lines[2][6]],
            ["0", "done", "0", "1", "2", "2", lines[3][6]],
        ]
        assert answer.stderr == "castoff: ordered by val/loss, smallest first, as its name suggests\n"

    def test_by_another_metric(self, sweep: RunDirectory, castoff: Castoff) -> None:
        def members(*words: str) -> list[int]:
            return [one["member"] for one in objects(castoff("results", sweep.id, "--json", *words).stdout)]

        assert members() == [2, 1, 0]
        assert members("--by", "val/f1") == [2, 1, 0]
        assert members("--by", "val/f1", "--smallest") == [0, 1, 2]
        answer = castoff("results", sweep.id, "--by", "nothing")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert (
            "--by nothing: no member has reported it; these were reported: val/loss, val/f1" in answer.stderr
        )

    def test_as_csv(self, sweep: RunDirectory, castoff: Castoff) -> None:
        answer = castoff("results", sweep.id, "--csv")
        rows = [*csv.DictReader(answer.stdout.splitlines())]
        assert [row["member"] for row in rows] == ["2", "1", "0"]
        first = {name: value for name, value in rows[0].items() if name != "seconds"}
        assert first == {
            **{"run": sweep.id, "member": "2", "state": "done", "code": "0", "attempts": "1"},
            **{"model.width": "16", "last val/loss": "1.3333333333333333"},
            **{"best val/loss": "0.3333333333333333", "step of best val/loss": "2"},
            **{"last val/f1": "0.5", "best val/f1": "2.0", "step of best val/f1": "0"},
        }
        assert castoff("results", sweep.id, "--csv", "--json").returncode == 2

    def test_as_json(self, sweep: RunDirectory, castoff: Castoff) -> None:
        best: dict[str, Any] = objects(castoff("results", sweep.id, "--json").stdout)[0]
        assert best["parameters"] == {"model.width": 16, "seed": 0}
        assert best["by"] == {"metric": "val/loss", "largest": False}
        assert best["best"] == {"step": 2, "value": 1 / 3}
        assert best["metrics"]["val/f1"]["largest"] == {"step": 0, "value": 2}

    def test_of_several_runs_one_without_metrics(
        self, sweep: RunDirectory, jobs: LocalJobs, castoff: Castoff
    ) -> None:
        plain = jobs.submit("--name", "plain", sh="exit 3")
        jobs.wait(plain)
        lines = castoff("results", plain.id, sweep.id).stdout.splitlines()
        assert lines[0].split()[:2] == ["run", "member"]
        assert [line.split()[0] for line in lines[1:]] == [sweep.id, sweep.id, sweep.id, plain.id]
        answer = castoff("results", plain.id)
        assert answer.returncode == 0 and "failed" in answer.stdout
        assert answer.stderr.startswith("castoff: no metrics: ")


def test_functions_have_results_without_parameters(jobs: LocalJobs, castoff: Castoff) -> None:
    """submitit's arrays: what a function was called with is in a pickle, which castoff does not open."""
    jobs.folder.joinpath("many.py").write_text(FUNCTIONS)
    subprocess.run([sys.executable, "many.py"], cwd=jobs.folder, check=True, timeout=patience.SECONDS)
    found = objects(castoff("results", "train", "--json", cwd=jobs.folder).stdout)
    assert [(one["member"], one["best"]["value"], one["parameters"]) for one in found] == [
        (1, 1, {}),
        (2, 2, {}),
        (0, 3, {}),
    ]


def test_the_parameters_of_many_members_are_cut(castoff: Castoff, jobs: LocalJobs) -> None:
    values = f"array.parameters={{a: [1], b: {[*range(700)]}}}"
    words = ["--set", values, "--set", "array.max_concurrent=1", "--set", "setup=[exit 1]"]
    run = jobs.submit(*words, "--", "true", "{a}", "{b}")
    facts = gather(run, Wish())
    castoff("cancel", run.id)
    assert "\n1\t0\n" in facts.script_head and "\n1\t699\n" in facts.script_head
    assert "\n1\t350\n" not in facts.script_head and "\ncastoff_end" in facts.script_head
    assert "lines are left out …" in facts.script_head and "lines are left out …" in facts.job_text
