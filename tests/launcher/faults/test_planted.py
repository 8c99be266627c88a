"""A link where a run directory is expected: no verb follows it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.submission.resubmit import resubmit

from ..conftest import LocalJobs, everything


@pytest.fixture
def taken(jobs: LocalJobs, tmp_path: Path) -> RunDirectory:
    """A run in whose place there is a link to it now."""
    run = jobs.submit("--name", "mine", sh="exit 3")
    jobs.wait(run)
    while is_alive(run):
        time.sleep(0.01)
    run.path.rename(tmp_path / "moved")
    run.path.symlink_to(tmp_path / "moved")
    return run


@pytest.mark.parametrize("verb", [request_stop, cancel, resubmit])
def test_a_link(taken: RunDirectory, tmp_path: Path, verb: Callable[[RunDirectory], object]) -> None:
    before = everything(tmp_path / "moved")
    with pytest.raises(CastoffError, match="is a link to"):
        verb(taken)
    assert everything(tmp_path / "moved") == before


def test_the_scheduler(taken: RunDirectory) -> None:
    words = [sys.executable, "-m", "castoff.launcher.cli.local_scheduler", str(taken.path)]
    answer = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    assert answer.returncode == 1 and answer.stdout == ""
    assert answer.stderr.startswith("castoff: ") and "is a link to" in answer.stderr


def test_folders_that_are_linked_or_everybody_s_are_fine(jobs: LocalJobs, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(0o1777)
    (tmp_path / "link").symlink_to("real")
    run = jobs.submit("--runs-dir", "link", sh="true")
    assert jobs.wait(run)["ending"] == "done"
    assert run.path.parent == tmp_path / "real" and run.path.stat().st_mode & 0o777 == 0o700
