"""Runs on Slurm whose jobs another cluster has, which shares a file system with this one.

Here the same id is another job's, or nobody's: what this cluster says of it is not an answer.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.executors.function_job import FunctionJob
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Send, Submission
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.schedulers.slurm.queue import SlurmQueue
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.settle import settle
from castoff.launcher.status.watch import status, statuses
from castoff.launcher.submission import resubmit as resubmission
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.dependencies import condition_holds, resolve
from castoff.launcher.submission.resubmit import resubmit
from tests.records import submission_of

from ..conftest import Castoff
from ..fake_slurm import FakeSlurm, OnSlurm

ELSEWHERE = "its jobs are on alps, and this is pilatus: ask there"
LOST = {"job": None, "count": None, "time": 899.0, "asked": 1.0}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = FakeSlurm(tmp_path, monkeypatch)
    is_called(slurm, "pilatus")
    slurm.program("sbatch", "echo 9")
    slurm.program("scancel", "true")
    monkeypatch.setattr(resubmission, "_PATIENCE", 0.0)
    return slurm


@pytest.fixture
def made(tmp_path: Path) -> OnSlurm:
    return OnSlurm(tmp_path, cluster="alps")


def is_called(slurm: FakeSlurm, name: str) -> None:
    slurm.program("scontrol", f"echo 'ClusterName             = {name}'")


def is_refused(slurm: FakeSlurm, made: OnSlurm, why: str = ELSEWHERE) -> None:
    with pytest.raises(CastoffError, match=why):
        resubmit(made.run)
    assert not {"sbatch", "squeue", "sacct"} & {*slurm.questions()}


class TestFromTheOtherOne:
    @pytest.mark.parametrize("ending", [None, "cancelled", "resume"])
    def test_it_may_still_be_active(self, slurm: FakeSlurm, made: OnSlurm, ending: str | None) -> None:
        """Also what ended by a signal, or is to go on, which its own cluster may have queued again."""
        made.attempt("0.0", ending, 143 if ending == "cancelled" else 0)
        now = status(made.run)
        assert (now.state, now.over, now.unsettled) == ("unknown", False, True)
        assert ELSEWHERE in (now.reason or "")
        assert slurm.questions() == ["scontrol"]
        conditions = ("after", "afterany", "afterok", "afternotok")
        assert {condition_holds(one, made.run) for one in conditions} == {None}
        assert not FunctionJob(made.run.path, "7").done(force_check=True)

    def test_its_own_records_count(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "done")
        assert (status(made.run).ending, condition_holds("afterok", made.run)) == ("done", True)
        assert slurm.questions() == []

    @pytest.mark.parametrize("ending", [None, "failed", "cancelled"])
    def test_it_is_not_resubmitted(self, slurm: FakeSlurm, made: OnSlurm, ending: str | None) -> None:
        made.attempt("0.0", ending, 3)
        is_refused(slurm, made)

    def test_but_where_nothing_of_it_was_ever_taken(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, cluster="alps", job=None, sends=[], error="invalid account")
        assert resubmit(made.run) == {0: 0} and submission_of(made.run).cluster == "pilatus"

    def test_what_is_unclear_is_not_taken_for_lost(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, cluster="alps", job=None, sends=[LOST])
        assert not settle(made.run, SlurmQueue()) and status(made.run).unsettled
        assert submission_of(made.run).sends == [Send(time=899.0, asked=1.0)]
        is_refused(slurm, made)

    def test_it_is_not_cancelled(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.tells(("7", "RUNNING"), run=made.run)
        made.attempt()
        made.write("attempts/0.0/start.json", {"job": "7", "cluster": "alps", "host": "n1", "time": 1000})
        with pytest.raises(CastoffError, match=ELSEWHERE):
            FunctionJob(made.run.path, "7").cancel()
        for submitted in (True, False):
            if not submitted:
                (made.run.path / "submission.json").unlink()
            (ended,) = end([made.run])
            assert not ended.asked
            assert ended.problem == (
                f"{made.run.id}: Slurm could not be reached; the run is still active: {ELSEWHERE}"
            )
        assert "scancel" not in slurm.questions()

    def test_it_cannot_be_waited_for(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        after = {"afterany": [str(made.run.path)]}
        with pytest.raises(CastoffError, match=rf"after\.afterany: .*Slurm cannot wait for .*: {ELSEWHERE}"):
            resolve(after, queued("slurm"), os.environ)
        with pytest.raises(CastoffError, match="PBS cannot wait"):
            resolve(after, queued("pbs"), os.environ)
        made.attempt("0.0", "done")
        for name in ("slurm", "pbs"):
            assert resolve(after, queued(name), os.environ)[1] == ""

    def test_it_is_not_removed_nor_remembered_as_over(
        self, slurm: FakeSlurm, made: OnSlurm, castoff: Castoff
    ) -> None:
        made.attempt("0.0", "cancelled", 143, time=int(time.time()) - 7300)
        Index.of(os.environ).add(made.run, "made")
        listed = castoff("list")
        assert f"{ELSEWHERE}: 1 run is shown as unknown, and may still be running" in listed.stderr
        castoff("clean", "--older-than", "1h", "--yes")
        assert made.run.script.exists()
        is_called(slurm, "alps")
        slurm.tells(("7", "PENDING"), run=made.run)
        assert "pending" in castoff("list").stdout

    def test_nor_what_it_waits_for(self, slurm: FakeSlurm, tmp_path: Path, castoff: Castoff) -> None:
        first = OnSlurm(tmp_path, id="first-1", cluster="alps")
        first.attempt("0.0", "done", time=int(time.time()) - 7300)
        second = OnSlurm(tmp_path, id="second-1", cluster="alps", after={"afterok": [str(first.run.path)]})
        for run in (first.run, second.run):
            Index.of(os.environ).add(run, "made")
        castoff("clean", "--older-than", "1h", "--yes")
        assert first.run.script.exists()


class TestWhichOneItIs:
    def test_and_where_slurm_did_not_at_its_submission(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, members=2)
        made.attempt("0.0", "failed", 3)
        made.write("attempts/0.0/start.json", {"job": "7", "cluster": "alps", "host": "n1", "time": 1000})
        is_refused(slurm, made)

    def test_an_attempt_that_was_sent_by_hand_on_another(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, cluster="pilatus")
        made.attempt("0.0", "failed", 3)
        made.attempt("0.1", job="12")
        made.write("attempts/0.1/start.json", {"job": "12", "cluster": "alps", "host": "n1", "time": 1000})
        is_refused(slurm, made)

    def test_a_launch_in_an_allocation_that_was_resubmitted(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "failed", 3, job="5")
        (made.run.path / "attempts/0.0/settled").touch()
        made.write("local.json", {"pid": 1, "host": socket.gethostname(), "submission": 0})
        record = submission_of(made.run)
        record.begin, record.earlier = {0: 1}, [Submission(time=1.0, job="5")]
        made.run.write_submission(record)
        is_refused(slurm, made)
        is_called(slurm, "alps")
        slurm.tells(("7", "PENDING"), run=made.run)
        assert status(made.run).state == "pending"

    def test_a_damaged_record(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "failed", 3)
        made.write("submission.json", {"job": "7", "time": "x"})
        is_refused(slurm, made, why="castoff did not submit it, or .* missing or damaged")

    def test_the_record_has_it(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path)
        made.attempt("0.0", "failed", 3)
        resubmit(made.run)
        assert (made.run.job, submission_of(made.run).cluster) == ("9", "pilatus")


class TestThisOne:
    def test_is_asked_for_its_name_once(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        runs = []
        for number, cluster in enumerate(["pilatus", None, "alps", "pilatus"]):
            made = OnSlurm(tmp_path / str(number), cluster=cluster)
            made.attempt()
            runs.append(made.run)
        slurm.queue.write_text(
            "".join(f"7|N/A|RUNNING|None|900|N/A|N/A|{run.script}\n" for run in runs[:2] + runs[3:])
        )
        poller = Poller()
        for _ in range(2):
            now = statuses(runs, poller)
            assert [one.state for one in now] == ["running", "running", "unknown", "running"]
        assert slurm.questions()[:2] == ["scontrol", "squeue"]
        assert [poller.silence_on(run) for run in runs] == [None, None, ELSEWHERE, None]

    @pytest.mark.parametrize(
        ("program", "why"),
        [
            ("echo broken", "scontrol does not report the cluster's name"),
            ("echo no >&2; exit 1", "scontrol failed with exit code 1: no"),
            (None, "scontrol is not on PATH here"),
        ],
    )
    def test_a_cluster_that_does_not_give_its_name(
        self, slurm: FakeSlurm, tmp_path: Path, program: str | None, why: str
    ) -> None:
        runs = []
        for number in range(3):
            made = OnSlurm(tmp_path / str(number), cluster="pilatus")
            made.attempt("0.0", "cancelled", 143)
            runs.append(made.run)
        if program is None:
            (slurm.folder / "scontrol").unlink()
        else:
            slurm.program("scontrol", program)
        for now in statuses(runs):
            assert (now.over, now.unsettled) == (False, True) and why in (now.reason or "")
        assert slurm.questions() == ([] if program is None else ["scontrol"])
