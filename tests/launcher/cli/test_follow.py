"""castoff submit --follow and castoff resubmit --follow, on the local scheduler and on a terminal."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from castoff.launcher.cli.follow import pause
from tests import patience
from tests.launcher.scripts.harness import CASTOFF

from ..conftest import Castoff, LocalJobs


def test_a_job_is_followed_to_its_end(castoff: Castoff, jobs: LocalJobs) -> None:
    words = ("submit", "-f", "--site", "local", "--ranks-per-node", "2", "--name", "mine", "--")
    both_wrote = "touch wrote-$RANK; until [ -e wrote-0 ]; do sleep 0.01; done"
    program = f"echo rank $RANK; {both_wrote}; exit $((RANK * 3))"
    answer = castoff(*words, "sh", "-c", program, cwd=jobs.folder)
    (run,) = jobs.runs()
    lines = answer.stdout.splitlines()
    assert answer.returncode == 3
    assert lines[0].split() == ["run", run.id]
    assert {"[0] rank 0", "[1] rank 1"} < set(lines)
    last = answer.stderr.splitlines()[-1]  # a busy machine may have it wait first
    assert last.startswith(f"castoff: {run.id}: failed; rank 1 on ") and "exit code 3; its log: " in last


def test_a_resubmission_shows_what_is_new(castoff: Castoff, jobs: LocalJobs) -> None:
    run = jobs.submit(sh="echo this is $CASTOFF_ATTEMPT; exit $((3 - 3 * CASTOFF_ATTEMPT))")
    assert jobs.wait(run)["code"] == 3
    answer = castoff("resubmit", "--follow", str(run.path), cwd=jobs.folder)
    assert (answer.returncode, answer.stderr) == (0, f"castoff: {run.id}: done\n")
    assert "[0] this is 1" in answer.stdout.splitlines()
    assert "this is 0" not in answer.stdout and "failed first" not in answer.stdout


def test_ctrl_c_leaves_the_job(jobs: LocalJobs) -> None:
    """SIGINT to the whole group, as a terminal sends it."""
    process = subprocess.Popen(
        [CASTOFF, "submit", "-f", "--site", "local", "--", "sh", "-c", "echo begun; sleep 86400"],
        cwd=jobs.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "[0] begun\n":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=patience.SECONDS)[1]
    (run,) = jobs.runs()
    again, end_it = f"`castoff logs -f {run.id}` follows it again", f"`castoff cancel {run.id}` ends it"
    last = f"\ncastoff: {run.id} was not stopped: {again}, {end_it}\n"
    assert process.returncode == 130 and said.endswith(last)  # a busy machine may have it wait first
    assert jobs.status(run)["state"] == "running"


@pytest.mark.parametrize("other", ["--json", "--dry-run"])
def test_what_it_excludes(castoff: Castoff, jobs: LocalJobs, other: str, tmp_path: Path) -> None:
    answer = castoff("submit", "-f", other, "--site", "local", "--", "true", cwd=jobs.folder)
    assert answer.returncode == 2 and f"--follow excludes {other}: drop one" in answer.stderr
    assert jobs.runs() == []


def test_a_pause_lasts_where_poll_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Mac's does for a terminal."""

    class Poll:
        def register(self, *_: int) -> None:
            pass

        def poll(self, _: float) -> list[tuple[int, int]]:
            return [(1, select.POLLNVAL)]

    slept: list[float] = []
    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(time, "sleep", slept.append)
    pause(5.0)
    assert len(slept) == 1 and 4.0 < slept[0] <= 5.0
