"""What is shown of attempts that one job makes after the other, from records made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.runs.states import summary, why
from castoff.launcher.status.watch import status
from tests.command_line import Castoff

from ..fake_pbs import FakePbs, OnPbs
from ..fake_slurm import FakeSlurm, OnSlurm
from .test_watch import Made

KILLED = "it was killed"


def failed(made: Made | OnSlurm | OnPbs, number: int, job: str = "7", *, restarts: bool = True) -> None:
    """Attempt `number`, a restart unless it is the first, which a KILL of rank 1 has ended."""
    folder = made.run.path / "attempts" / f"0.{number}"
    folder.mkdir()
    restart = {"restart": number} if number else {}
    made.write(f"attempts/0.{number}/start.json", {"job": job, "host": "n1", "time": 1000, **restart})
    record = {"rank": 1, "host": "n1", "code": 137, "signal": "SIGKILL", "time": 1009}
    made.write(f"attempts/0.{number}/failure.json", record)
    ending: dict[str, Any] = {"ending": "failed", "code": 137, "time": 1010, "reason": KILLED}
    made.write(f"attempts/0.{number}/ending.json", {**ending, **({"restart": True} if restarts else {})})


def endings(run: RunDirectory) -> list[str | None]:
    return [one.ending for one in status(run).members[0].attempts]


class TestLocal:
    def test_between_two_attempts_it_runs(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        failed(made, 0, "x")
        with made.alive():
            now = status(made.run)
            assert (now.state, now.ending, now.members[0].attempts[0].ending) == ("running", None, None)
            (made.run.path / "attempts/0.1").mkdir()
            now = status(made.run)
            assert (now.state, endings(made.run)) == ("running", ["failed", None])
        now = status(made.run)
        assert (now.state, endings(made.run)) == ("unknown", ["failed", "unknown"])

    def test_a_job_that_died_between_them(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        failed(made, 0, "x")
        now = status(made.run)
        assert (now.state, now.ending, now.code) == ("unknown", "unknown", None)

    def test_what_ends_it_counts(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        failed(made, 0, "x")
        made.attempt("0.1", "done")
        now = status(made.run)
        assert (now.state, now.ending, now.code, endings(made.run)) == (
            "ended",
            "done",
            0,
            ["failed", "done"],
        )

    def test_the_run_says_why_it_failed(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        failed(made, 0, "x")
        failed(made, 1, "x", restarts=False)
        assert status(made.run).reason == f"rank 1 on n1 failed first: killed by SIGKILL; {KILLED}"

    def test_a_stop_reaches_the_attempt_that_is_to_follow(self, tmp_path: Path) -> None:
        made = Made(tmp_path)
        failed(made, 0, "x")
        request_stop(made.run)
        assert (made.run.path / "attempts/0.0/stop").exists()


class TestQueued:
    def test_slurm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slurm, made = FakeSlurm(tmp_path, monkeypatch), OnSlurm(tmp_path)
        failed(made, 0)
        slurm.tells(("7", "RUNNING"), run=made.run)
        assert status(made.run).state == "running"
        failed(made, 1)
        now = status(made.run)
        assert (now.state, endings(made.run)) == ("running", ["failed", None])
        assert [one.restart for one in now.members[0].attempts] == [None, 1]
        slurm.questions()
        failed(made, 1 + 1, restarts=False)
        slurm.queue.write_text("")
        slurm.remembers(("7", "FAILED", "137:0", 999, 1020), run=made.run)
        assert endings(made.run) == ["failed"] * 3
        assert [one.reason for one in status(made.run).members[0].attempts] == [KILLED] * 3
        assert not (made.run.path / "attempts/0.0/scheduler.json").exists()

    def test_slurm_that_ended_the_job_between_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slurm, made = FakeSlurm(tmp_path, monkeypatch), OnSlurm(tmp_path)
        failed(made, 0)
        slurm.remembers(("7", "NODE_FAIL", "0:0", 999, 1020), run=made.run)
        now = status(made.run)
        assert (now.state, now.ending) == ("ended", "node-failure")

    def test_pbs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pbs, made = FakePbs(tmp_path, monkeypatch), OnPbs(tmp_path)
        failed(made, 0, "7.head")
        pbs.tells({"7.head": {"job_state": "R", "stime": "Fri Nov 20 12:00:00 2026"}}, made.run)
        assert status(made.run).state == "running"
        made.attempt("0.1")
        now = status(made.run)
        assert (now.state, endings(made.run)) == ("running", ["failed", None])
        assert now.members[0].attempts[0].reason == KILLED

    def test_a_job_that_follows_another_restarts_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before an attempt has said so, its job is that of the attempt before, and not the first one."""
        pbs, made = FakePbs(tmp_path, monkeypatch), OnPbs(tmp_path)
        made.goes_on()
        failed(made, 1, "8.head")
        (made.run.path / "attempts/0.2").mkdir()
        pbs.tells({"8.head": {"job_state": "R", "stime": "Fri Nov 20 12:00:00 2026"}}, made.run)
        now = status(made.run)
        assert (now.state, endings(made.run)) == ("running", ["resume", "failed", None])


class TestWhy:
    RANK = Failure(1, 3, "n2")

    def test_of_a_rank(self) -> None:
        words = "rank 3 on n2 failed first: exit code 1"
        assert why(self.RANK, None) == [words]
        assert why(self.RANK, "restart.max (3) is used up") == [words, "restart.max (3) is used up"]

    def test_a_hang(self) -> None:
        hung = Failure(1, 3, "n2", reason="hang")
        assert why(hung, None) == ["rank 3 on n2 hung"]
        assert why(Failure(1, None, "n2", reason="hang"), None) == ["the ranks hung"]
        assert why(hung, "hang: no output for 9 s") == ["hang: no output for 9 s"]

    def test_of_none(self) -> None:
        assert (why(None, None), why(None, "it is odd")) == ([], ["it is odd"])


class TestShown:
    def test_status(self, tmp_path: Path, castoff: Castoff) -> None:
        made = Made(tmp_path)
        for number in range(14):
            failed(made, number, "x", restarts=number < 13)
        ending = {"ending": "failed", "code": 137, "time": 1010, "reason": "restart.max is used up"}
        made.write("attempts/0.13/ending.json", ending)
        made.run.script.touch()
        (made.run.path / "set-aside").mkdir()
        made.write("set-aside/n3.json", {"host": "n3", "reason": "it does not answer", "attempt": 4})
        made.write("set-aside/n4.json", ["not a record"])
        lines = castoff("status", made.run.path).stdout.splitlines()
        assert "set aside  n3: it does not answer (attempt 4)" in lines
        assert "attempts   0-3  4 failed; --json lists all of them" in lines
        assert [line.split()[1] for line in lines if line.startswith("attempt ")] == [*map(str, range(4, 14))]
        assert sum("restart 5 of its job" in line for line in lines) == 1
        last = ["rank 1 on n1 failed first: killed by SIGKILL", "restart.max is used up"]
        assert [line.strip() for line in lines[-3:-1]] == last
        (facts,) = map(json.loads, castoff("status", made.run.path, "--json").stdout.splitlines())
        assert [one["host"] for one in facts["set_aside"]] == ["n3"]
        assert summary(status(made.run)).reason == "; ".join(last)

    def test_ranks_on_other_hosts_than_the_script(self, tmp_path: Path, castoff: Castoff) -> None:
        made = Made(tmp_path)
        for number, hosts in enumerate(["n1.cluster\nn2\n", "n2\nn3\n"]):
            failed(made, number, "x", restarts=not number)
            (made.run.path / f"attempts/0.{number}/hosts").write_text(hosts)
        made.run.script.touch()
        shown = [line for line in castoff("status", made.run.path).stdout.splitlines() if "began " in line]
        assert [line.partition(" on ")[2].partition(", restart")[0] for line in shown] == [
            "n1",
            "n2, n3 (its script on n1)",
        ]
