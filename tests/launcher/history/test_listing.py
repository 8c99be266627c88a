"""The words of a run's row, which every list shows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.history.listing import explained, run_words, words_of_status
from castoff.launcher.history.metrics import Metrics, Report
from castoff.launcher.history.progress import Metric, Progress
from castoff.launcher.runs.states import RunSummary, summary
from castoff.launcher.status.watch import status

from ..status.test_watch import Made

NOW = 1_795_000_000.0
HALF = Progress(step=500, total=1000, reported=NOW, pace=2, loss=Metric("train/loss", 0.25))


def run(state: str, **facts: Any) -> RunSummary:
    return RunSummary(**{"name": "train", "state": state, "members": 1, **facts})


@pytest.mark.parametrize(
    ("walltime_left", "words"),
    [(None, "4m to the last step"), (3600.0, "4m to the last step"), (60.0, "60s to the walltime")],
)
def test_how_far_a_run_is(walltime_left: float | None, words: str) -> None:
    deadline = None if walltime_left is None else NOW + walltime_left
    row = run_words(run("running", started=NOW - 90), NOW, HALF, deadline)
    assert row.progress == f"step 500/1,000, train/loss 0.25, {words}"
    assert (row.state, row.took, row.part, row.why) == ("running", "90s", 0.5, "")


def test_a_run_that_is_over_has_no_time_left() -> None:
    row = run_words(run("ended", ending="done", started=NOW - 90, ended=NOW - 60), NOW, HALF, NOW + 60)
    assert (row.state, row.left, row.took) == ("done", None, "30s")


def test_an_array_counts_its_members() -> None:
    row = run_words(run("running", members=8, counts={"done": 2, "failed": 1, "running": 5}), NOW)
    assert (row.progress, row.part) == ("2/8 done, 1 failed, 5 running", 0.25)


def test_why_a_run_waits_and_when_it_starts() -> None:
    clock = time.strftime("%H:%M", time.localtime(NOW + 60))
    waits = run("pending", reason="others come\nfirst", expected_start=NOW + 60)
    assert run_words(waits, NOW).why == f"starts ~{clock}; others come first"
    stopped = run_words(run("running", stop_requested=True, reason="x"), NOW)
    assert (stopped.state, stopped.why, stopped.is_explained) == ("stopping", "x", False)


def test_a_failure_that_only_a_scripts_log_explains(tmp_path: Path) -> None:
    made = Made(tmp_path)
    made.attempt("0.0", "failed", 1)
    (made.run.path / "logs").mkdir(exist_ok=True)
    early = summary(status(made.run))
    assert early.reason is None
    made.run.script_log(0).write_text("srun: error: Unable to create step for job 7\n")
    for known in (status(made.run), None):  # as seen just now, and as the index remembers it
        row = explained(early, str(made.run.path), known)
        assert run_words(row, NOW).why == "srun: error: Unable to create step for job 7"


def test_a_status_says_the_same(tmp_path: Path) -> None:
    made = Made(tmp_path)
    with made.alive():
        made.attempt("0.0")
        now = status(made.run)
        began = now.members[0].attempts[0].started or 0.0
        reports = [Report(step, {"loss": 1.0}, began + step) for step in range(3)]
        words = words_of_status(now, [Metrics(reports, step=2, total_steps=102, time=began + 2)], began + 2)
    assert (words.state, words.progress.partition(",")[0]) == ("running", "step 2/102")
