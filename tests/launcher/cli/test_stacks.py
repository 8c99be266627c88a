"""castoff stacks: where the ranks of a running job are, for any Python program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.command_line import Castoff

from ..conftest import LocalJobs

pytestmark = pytest.mark.usefixtures("for_real")

Until = Callable[..., None]

STUCK = """
import os, threading, time

def in_c():
    time.sleep(600)

def in_a_lock():
    lock = threading.Lock()
    with lock:
        lock.acquire()

threading.Thread(target=in_c, name="beside", daemon=True).start()
in_a_lock() if os.environ["RANK"] == "1" else in_c()
"""


@pytest.fixture
def stuck(jobs: LocalJobs) -> Iterator[RunDirectory]:
    """Three ranks, of which one waits for a lock."""
    (jobs.folder / "stuck.py").write_text(STUCK)
    run = jobs.submit("--name", "stuck", "--ranks-per-node", "3", "--", sys.executable, "-S", "stuck.py")
    yield run
    jobs.castoff("cancel", str(run.path))
    jobs.wait(run)


def test_the_odd_rank_is_first(
    castoff: Castoff, jobs: LocalJobs, until: Until, stuck: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For people and for programs; the run continues."""
    monkeypatch.chdir(jobs.folder)

    answers = iter(lambda: castoff("stacks", "stuck"), None)
    until(lambda: (text := next(answers).stdout).count(" in_a_lock (") and text.count(" in_c (") == 1)
    answer = castoff("stacks", "stuck", "--all-threads")
    summary, blank, *lines = answer.stdout.splitlines()
    assert summary.startswith(f"{stuck.id}: 3 ranks on 1 host at ") and blank == ""
    assert lines[0].startswith("rank 1 on ") and ", process " in lines[0]
    assert lines[1:5] == [
        *("    in_a_lock (stuck.py:10)", "    <module> (stuck.py:13)"),
        *("  thread beside:", "    in_c (stuck.py:5)"),
    ]
    second = lines.index("") + 1
    assert lines[second].startswith("ranks 0, 2 on ")
    assert lines[second + 1 : second + 3] == ["    in_c (stuck.py:5)", "    <module> (stuck.py:13)"]
    answer = castoff("stacks", "stuck", "--rank", "1", "--json")
    facts = json.loads(answer.stdout)
    (rank,) = facts["ranks"]
    assert (facts["id"], facts["unanswered"], facts["missing"]) == (stuck.id, [], [])
    assert (rank["rank"], rank["source"], rank["threads"][0]["frames"][0]["line"]) == (1, "py-spy", 10)
    assert (answer.returncode, answer.stderr, jobs.status(stuck)["state"]) == (0, "", "running")


def test_ranks_that_ended_and_programs_without_a_stack(
    castoff: Castoff, jobs: LocalJobs, until: Until
) -> None:
    """Each rank is named with the reason; without any stack, the code is 1."""
    run = jobs.submit(
        "--name",
        "one",
        "--ranks-per-node",
        "2",
        sh='[ "$RANK" = 1 ] || { until [ -e go ]; do sleep 0.05; done; }',
    )
    until((run.path / "attempts" / "0.0" / "ended" / "1").exists)
    answer = castoff("stacks", "one")
    assert answer.returncode == 1
    assert "no stack: it is not a Python process, but sh\n" in answer.stdout
    assert answer.stderr == "castoff: rank 1 ended well\n"
    (jobs.folder / "go").touch()
    jobs.wait(run)
    assert f"{run.id}: it is over (done), so no rank is left" in castoff("stacks", "one").stderr
