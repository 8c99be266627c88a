"""What jobs used: measured on this machine, reported by sacct, kept, and summed to node-hours."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff import JobSpec, Run, Site, submit
from castoff.launcher.history.usage import Share, shares, starts, total, usages
from castoff.launcher.runs.records import Facts, Sharing, Usage
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus
from castoff.launcher.status import watch
from tests import patience

from ..conftest import LocalJobs
from ..fake_slurm import FakeSlurm, OnSlurm


def attempt(number: int, started: float | None, ended: float | None, **more: object) -> AttemptStatus:
    state = "ended" if ended else "running"
    words = {"code": None, "reason": None, "host": None, "failure": None, "logs": "", **more}
    ending = None if state == "running" else "done"
    return AttemptStatus(
        attempt=number,
        **{"state": state, "ending": ending, "started": started, "ended": ended, **words},  # type: ignore[arg-type]
    )


def status(*attempts: AttemptStatus, walltime: int | None = 3600) -> RunStatus:
    return RunStatus(
        name="made",
        site="big",
        state="ended",
        id="made-1",
        directory="/made-1",
        final=True,
        walltime=walltime,
        members=[MemberStatus(0, "ended", "done", [*attempts])],
    )


def test_what_a_run_here_used(jobs: LocalJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(jobs.folder)
    burns = "import time\nwhile time.process_time() < 0.3: pass\nheld = b'1' * (50 << 20)"
    job = JobSpec(command=["python", "-c", burns], ranks_per_node=2, walltime="10m")
    run = submit(job, Site.load("local"))
    now = run.wait(patience.SECONDS)
    (used,) = usages(run, now).values()
    assert used.source == "castoff" and used.cpu_seconds is not None and used.elapsed is not None
    assert used.cpu_seconds >= 0.6
    assert used.memory is not None and used.memory > 50 << 20
    (share,) = shares(now, run.facts(), at=0)
    assert share.requested == 1 / 6 and share.ending == "done"


class TestSlurm:
    @pytest.fixture
    def slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
        return FakeSlurm(tmp_path, monkeypatch)

    def test_it_is_asked_once_and_its_answer_kept(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path)
        made.attempt(ending="done")
        slurm.history.write_text("7|1003|10|4|2|1G|00:31.000|||\n7.0|1003|10|4|2||00:31.000|5M||\n")
        used = Usage("sacct", 10, 31, 4, 5 << 20, 1 << 30)
        now = watch.status(made.run)
        slurm.questions()
        assert usages(made.run, now, asks=False) == {}
        assert usages(made.run, now) == usages(made.run, now) == {(0, 0): used}
        assert slurm.questions() == ["sacct"]

    def test_an_answer_soon_after_the_end_is_not_kept(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        """The accounting may not have heard of the end yet."""
        made, began = OnSlurm(tmp_path), int(time.time())
        made.attempt(ending="done", time=began)
        slurm.history.write_text(f"7|{began}|10|4|2|1G|00:31.000|||\n")
        now = watch.status(made.run)
        slurm.questions()
        assert usages(made.run, now).keys() == usages(made.run, now).keys() == {(0, 0)}
        assert slurm.questions() == ["sacct", "sacct"]

    def test_a_start_that_is_not_this_one_says_nothing(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path)
        made.attempt(ending="done")
        slurm.history.write_text("7|9000|10|4|2|1G|00:31.000|||\n8|1000|10|4|2|1G|00:31.000|||\n")
        assert usages(made.run, watch.status(made.run)) == {}

    def test_each_start_of_a_requeued_job(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path)
        made.attempt(ending="walltime", code=75)
        made.attempt("0.1", ending="done", time=2000)
        lines = ("7|1001|10|4|2|1G|00:01.000|||", "7|1998|10|4|2|1G|00:02.000|||\n")
        slurm.history.write_text("\n".join(lines))
        found = usages(made.run, watch.status(made.run))
        assert {key: one.cpu_seconds for key, one in found.items()} == {(0, 0): 1, (0, 1): 2}

    def test_a_slurm_that_fails_says_nothing(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path)
        made.attempt(ending="done")
        slurm.program("sacct", "exit 1")
        assert usages(made.run, watch.status(made.run)) == {}
        assert not (made.run.path / "attempts" / "0.0" / "usage.json").exists()


class TestNodeHours:
    PLAN = Facts(account="climate", queue="debug", held_nodes=3)

    def test_restarts_share_their_jobs_nodes(self) -> None:
        now = status(attempt(0, 0.5, 600), attempt(1, 900, 1800.5, restart=1), attempt(2, 5000, 5600))
        assert [len(one.attempts) for one in starts(now)] == [2, 1]
        first, second = shares(now, self.PLAN, at=9e9)
        assert first == Share("big", "climate", "debug", "done", 3.0, 1.5)
        assert second.used == 0.5

    def test_members_that_share_a_job_have_their_part_of_it(self) -> None:
        """Of its nodes while they run; and of what it asked for, whether they use it or not."""
        sharing = Sharing(members=24, at_once=8, per_node=4, nodes=2)
        (share,) = shares(status(attempt(0, 0, 1800)), Facts(held_nodes=1, sharing=sharing), at=9e9)
        assert (share.requested, share.used) == (2 / 24, 0.125)

    def test_what_runs_and_what_waits(self) -> None:
        now = status(attempt(0, 100, None))
        (share,) = shares(now, self.PLAN, at=1300)
        assert (share.ending, share.used) == ("running", 1.0)
        assert [*shares(status(attempt(0, None, None)), self.PLAN, at=1300)] == []
        assert [*shares(now, self.PLAN, at=1300, since=101)] == []

    def test_what_is_not_known_is_counted_apart(self) -> None:
        lost = attempt(0, 100, None, state="unknown", ending="unknown")
        found = [
            *shares(status(lost, walltime=None), Facts(layout=[(4, 2)]), at=1000),
            *shares(status(attempt(0, 0.5, 1800.5)), Facts(layout=[(4, 2), (2, 1)]), at=1000),
        ]
        assert total(found) == (2, 3.0, 1.5, 1, 1)


def test_castoff_usage(ended: Callable[..., Run], jobs: LocalJobs) -> None:
    assert jobs.castoff("usage").stderr.startswith("castoff: none of these runs has started")
    ended("true", name="a", walltime="1h")
    ended("exit 3", name="b", walltime="2h", array={"count": 2})
    ended("true", name="c")
    done = jobs.castoff("usage")
    headings, *rows = (re.split(" {2,}", line) for line in done.stdout.splitlines())
    assert headings == ["site", "account", "queue", "ending", "starts", "requested node-h", "used node-h"]
    assert sorted(row[:6] for row in rows[:-1]) == [
        ["local", "-", "-", "done", "2", "1.00"],
        ["local", "-", "-", "failed", "2", "4.00"],
    ]
    assert rows[-1][:6] == ["total", "-", "-", "-", "4", "5.00"]
    assert done.stderr == "castoff: requested does not include 1 start without a walltime\n"
    assert len(jobs.castoff("usage", "--name", "b").stdout.splitlines()) == 2
    assert '"starts": 2, "requested": 4.0' in jobs.castoff("usage", "--name", "b", "--json").stdout
