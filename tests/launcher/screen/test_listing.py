"""The list of runs at several widths."""

from __future__ import annotations

import math
import time

import pytest

from castoff.launcher.history.listing import run_words
from castoff.launcher.history.progress import Metric, Progress
from castoff.launcher.screen.listing import heading, lines, shown

from .made import NOW, item, texts

HALF = Progress(step=500, total=1000, reported=NOW, pace=2, loss=Metric("loss", 0.25))
RUNS = [
    item("done-20261128-101500-aaaa", "ended", ending="done", ago=7200, progress=HALF),
    item(
        "bad-20261128-101500-bbbb", "ended", ending="failed", reason="rank 3 on n1 failed first: exit code 1"
    ),
    item("train-20261128-101500-cccc", "running", progress=HALF, left=3600),
    item("short-20261128-101500-dddd", "running", progress=HALF, left=60, stop_requested=True),
    item(
        "wait-20261128-101500-eeee",
        "pending",
        reason="others come first (Priority)",
        expected_start=NOW + 600,
    ),
    item(
        "sweep-20261128-101500-ffff",
        "running",
        ago=30,
        members=8,
        counts={"done": 2, "failed": 1, "running": 5},
    ),
    item("odd-20261128-101500-9999", "unknown", ending="unknown", reason="Slurm no longer\nknows job 7"),
]


def test_those_that_run_come_first_then_the_newest() -> None:
    ids = [one.row.entry.name for one in shown(RUNS, "all", "")]
    assert ids == ["sweep", "train", "short", "wait", "bad", "odd", "done"]
    assert [one.row.entry.name for one in shown(RUNS, "active", "")] == ids[:4]
    assert [one.row.entry.name for one in shown(RUNS, "failed", "")] == ["bad"]
    assert [one.row.entry.name for one in shown(RUNS, "all", "SHORT-2026")] == ["short"]
    assert shown(RUNS, "failed", "train") == []


def test_a_loss_that_is_nan_stands_out() -> None:
    progress = HALF._replace(loss=Metric("loss", math.nan))
    _, line = lines([item("bad-20261128-101500-bbbb", "running", progress=progress)], NOW, 80)
    assert [span.style for span in line if span.text.strip() == "nan"] == ["bold red"]


def test_silence_stands_out() -> None:
    _, line = lines([item("quiet-20261128-101500-bbbb", "running", progress=HALF, silent=125)], NOW, 80)
    assert [span.text.rstrip() for span in line if span.style == "yellow"] == [
        "no output for 2m, step 500/1,000"
    ]


def test_at_80_columns() -> None:
    clock = time.strftime("%H:%M", time.localtime(NOW + 600))
    assert texts(lines(shown(RUNS, "all", ""), NOW, 80)) == [
        "run          state     progress                            loss      left    age",
        "sweep..ffff  running   ██░░░░░░ 2/8 done, 1 failed, 5 ru…                    30s",
        "train..cccc  running   ████░░░░  50% 500/1,000             0.25        4m    60s",
        "short..dddd  stopping  ████░░░░  50% 500/1,000             0.25  wall 60s    60s",
        f"wait..eeee   pending   starts ~{clock}; others come first …                    60s",
        "bad..bbbb    failed    rank 3 on n1 failed first: exit c…                    60s",
        "odd..9999    unknown   Slurm no longer knows job 7                           60s",
        "done..aaaa   done      ████░░░░  50% 500/1,000             0.25            2h00m",
    ]


@pytest.mark.parametrize("width", [50, 60, 79, 80, 100, 130, 300])
def test_it_fits_and_what_tells_most_stays(width: int) -> None:
    found = texts(lines(shown(RUNS, "all", ""), NOW, width))
    assert max(map(len, found)) <= width
    assert found[0].split()[:3] == ["run", "state", "progress"]
    assert ("loss" in found[0], "left" in found[0], "age" in found[0]) == (width > 60, width > 50, width > 60)
    assert ("train-20261128-101500-cccc" in found[2]) == (width >= 130)


def test_what_would_reach_the_terminal_does_not() -> None:
    hostile = item("x\x1b]0;mine\x07-1", "ended", ending="failed", reason="\x1b[31mred\nline")
    assert "\x1b" not in "".join(texts(lines([hostile], NOW, 120)))


def test_a_start_on_another_day_has_a_date() -> None:
    tomorrow = item("w-1", "pending", expected_start=NOW + 3 * 86400).row.summary
    assert run_words(tomorrow, NOW).why == time.strftime(
        "starts ~%m-%d %H:%M", time.localtime(NOW + 3 * 86400)
    )
    assert run_words(item("w-1", "pending", reason="held").row.summary, NOW).why == "held"


def test_the_title_counts() -> None:
    assert heading(RUNS, "all", "", 0) == "castoff top, 3 running, 1 pending, 1 unknown, 2 ended"
    assert heading([], "failed", "x", 7) == "castoff top, 7 older (a), filter: failed, search: x"
    assert heading([], "all", "", 0) == "castoff top"
