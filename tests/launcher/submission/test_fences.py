"""What a resubmission does with the fences of earlier attempts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.submission.resubmit import FENCE_TIME, raise_fences


def attempt(run: RunDirectory, name: str, word: str, age: float) -> Path:
    """An attempt whose script has written this word so many seconds before the run is looked at."""
    fence = run.path / "attempts" / name / "fence"
    fence.parent.mkdir(parents=True)
    fence.write_text(f"{word}\n")
    written = fence.stat().st_mtime - age
    os.utime(fence, (written, written))
    return fence


@pytest.mark.parametrize(
    ("word", "age", "left", "then"),
    [
        ("live", 1000, FENCE_TIME, "next"),
        ("over", 1000, 0, "over"),
        ("over", -1000, FENCE_TIME, "over"),
        ("next", -1000, FENCE_TIME, "next"),
        ("gone", -1000, 0, "gone"),
    ],
)
def test_what_may_still_run_is_to_end_itself(
    word: str, age: float, left: float, then: str, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)
    fence = attempt(run, "3.0", word, age)
    other = attempt(run, "4.0", "live", 0)
    assert raise_fences(run, {3}) == left
    assert (fence.read_text(), other.read_text()) == (f"{then}\n", "live\n")


def test_an_attempt_without_a_fence_has_left_nothing(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "0.0").mkdir(parents=True)
    assert raise_fences(RunDirectory(tmp_path), {0}) == 0


def test_a_fence_that_cannot_be_written_says_nothing_about_what_runs(tmp_path: Path) -> None:
    fence = tmp_path / "attempts" / "0.0" / "fence"
    fence.parent.mkdir(parents=True)
    fence.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="fence"):
        raise_fences(RunDirectory(tmp_path), {0})
