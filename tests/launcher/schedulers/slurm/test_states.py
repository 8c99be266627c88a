"""The states of runs on Slurm, from records made by hand and from what squeue and sacct print."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import locked
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Send
from castoff.launcher.runs.run import LOCK
from castoff.launcher.runs.states import RunStatus, summary
from castoff.launcher.schedulers import base_queue as questions
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.page import Page
from castoff.launcher.status import poller
from castoff.launcher.status.overview import Overview
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.watch import poll, status, statuses, wait
from castoff.launcher.submission import resubmit as resubmission
from castoff.launcher.submission.dependencies import condition_holds
from castoff.launcher.submission.resubmit import resubmit
from tests.patience import until
from tests.records import submission_of

from ...fake_slurm import FakeSlurm, OnSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> OnSlurm:
    return OnSlurm(tmp_path)


def ending(now: RunStatus) -> tuple[str, str | None, int | None]:
    return now.state, now.ending, now.code


class TestWhatIsAsked:
    @pytest.mark.parametrize("word", [("done", 0), ("failed", 3), ("walltime", 75), ("resume", 75)])
    def test_no_query_where_the_record_is_complete(
        self, slurm: FakeSlurm, made: OnSlurm, word: tuple[str, int]
    ) -> None:
        made.attempt("0.0", *word)
        assert status(made.run).ending == word[0]
        assert slurm.questions() == []

    @pytest.mark.parametrize(
        ("word", "questions"),
        [
            ("PENDING", ["squeue"]),
            ("RUNNING", ["squeue"]),
            ("TIMEOUT", ["squeue"]),
            ("FAILED", ["squeue", "sacct"]),
        ],
    )
    def test_accounting_is_queried_only_if_the_queue_lacks_the_job(
        self, slurm: FakeSlurm, made: OnSlurm, word: str, questions: list[str]
    ) -> None:
        slurm.tells(("7", word), run=made.run)
        status(made.run)
        assert slurm.questions() == questions

    def test_once_for_many_runs(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        runs = []
        for number in range(5):
            made = OnSlurm(tmp_path / str(number), sends=[{"job": str(70 + number), "count": None}])
            made.attempt("0.0", job=str(70 + number))
            runs.append(made.run)
        slurm.tells(("70", "RUNNING"), run=runs[0])
        now = statuses(runs)
        assert [one.state for one in now] == ["running", *4 * ["unknown"]]
        (queue, history) = slurm.asked.read_text().splitlines()
        assert queue.startswith("squeue ") and "--jobs=71,72,73,74" in history

    def test_what_was_learnt_is_not_asked_again(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt()
        slurm.remembers(("7", "OUT_OF_MEMORY", "0:125", 999, 1020), run=made.run)
        assert ending(status(made.run)) == ("ended", "out-of-memory", 253)
        word = made.run.path / "attempts/0.0/scheduler.json"
        assert word.stat().st_mode & 0o777 == 0o600 and json.loads(word.read_text())["time"] == 1020
        slurm.questions()
        now = status(made.run)
        assert ending(now) == ("ended", "out-of-memory", 253) and slurm.questions() == []
        assert now.members[0].attempts[0].reason == "it used more memory than it had" and now.final

    def test_commands_get_a_cleaned_environment(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("SQUEUE_FORMAT", "SLURM_TIME_FORMAT", "SACCT_FORMAT", "SLURM_CLUSTERS", "SLURM_CONF"):
            monkeypatch.setenv(name, "theirs")
        slurm.program("squeue", f"env >{slurm.folder}/seen; cat {slurm.queue}")
        status(made.run)
        seen = dict(line.split("=", 1) for line in (slurm.folder / "seen").read_text().splitlines())
        info = {name: value for name, value in seen.items() if name.startswith(("SQ", "SL", "SA", "LC_ALL"))}
        assert info == {"SLURM_CONF": "theirs", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


BETTER_KNOWN = [
    ("TIMEOUT", "walltime", 143),
    ("OUT_OF_MEMORY", "out-of-memory", 137),
    ("NODE_FAIL", "node-failure", 1),
    ("BOOT_FAIL", "node-failure", 1),
    ("PREEMPTED", "preempted", 143),
    ("CANCELLED", "cancelled", 143),
    ("DEADLINE", "walltime", 143),
]
"""Words that count more than a script's ending; the ending, and the code of a script that recorded none."""


class TestStates:
    def test_waiting(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.tells(("7", "PENDING"), run=made.run, reason="Priority")
        now = status(made.run)
        assert (*ending(now), now.reason) == ("pending", None, None, "others come first (Priority)")
        assert condition_holds("after", made.run) is None
        assert summary(now).reason == now.reason

    def test_what_never_begins_is_not_waited_for(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """But it is not over: Slurm has it until somebody cancels it."""
        slurm.program("sbatch", "exit 1")
        slurm.tells(("7", "PENDING"), run=made.run, reason="DependencyNeverSatisfied")
        now = wait(made.run)
        assert ending(now) == ("pending", None, None) and now.never_begins and not now.over
        with pytest.raises(CastoffError, match="still running"):
            resubmit(made.run)

    def test_some_of_which_never_begin(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, members=2)
        made.attempt("0.0", "done")
        line = f"7|1|PENDING|Priority|900|N/A|N/A|{made.run.script}\n"
        slurm.queue.write_text(line)
        assert not status(made.run).never_begins
        slurm.queue.write_text(line.replace("Priority", "DependencyNeverSatisfied"))
        assert wait(made.run).never_begins

    def test_an_attempt_that_has_just_made_its_folder(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        (made.run.path / "attempts/0.0").mkdir()
        slurm.tells(("7", "RUNNING"), run=made.run)
        assert status(made.run).state == "running"

    def test_running_before_it_has_written_anything(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.tells(("7", "RUNNING"), run=made.run)
        now = status(made.run)
        assert (now.state, now.members[0].attempts) == ("running", [])

    @pytest.mark.parametrize("word", ["RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT"])
    def test_running(self, slurm: FakeSlurm, made: OnSlurm, word: str) -> None:
        made.attempt()
        slurm.tells(("7", word), run=made.run)
        assert status(made.run).members[0].attempts[0].state == "running"
        made.write("attempts/0.0/ending.json", {"ending": "cancelled", "code": 143})
        assert status(made.run).state == "running"  # Slurm may be about to queue it again
        made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0})
        assert ending(status(made.run)) == ("ended", "done", 0)

    @pytest.mark.parametrize(
        ("source", "script", "word", "wanted", "code"),
        [
            *(("squeue", script, *info) for script in (None, "failed") for info in BETTER_KNOWN),
            ("squeue", "cancelled", *BETTER_KNOWN[0]),
            *(("sacct", script, *BETTER_KNOWN[0]) for script in (None, "cancelled", "failed")),
        ],
    )
    def test_slurm_knows_better(
        self,
        slurm: FakeSlurm,
        made: OnSlurm,
        source: str,
        script: str | None,
        word: str,
        wanted: str,
        code: int,
    ) -> None:
        made.attempt("0.0", script, 137 if script == "failed" else 143)
        if source == "squeue":
            slurm.tells(("7", word), run=made.run)
        else:
            slurm.remembers(("7", word, "0:0", 999, 1011), run=made.run)
        own = {None: code, "cancelled": 143, "failed": 137}[script]
        for _ in range(2):
            assert ending(status(made.run)) == ("ended", wanted, own)
        assert (made.run.path / "attempts/0.0/scheduler.json").exists()

    @pytest.mark.parametrize(
        ("info", "wanted"),
        [
            ("3:0", ("ended", "failed", 3)),
            ("0:9", ("ended", "failed", 137)),
            ("143:0", ("ended", "cancelled", 143)),
            ("75:0", ("ended", "walltime", 75)),
        ],
    )
    def test_a_script_that_could_not_write_its_ending(
        self, slurm: FakeSlurm, made: OnSlurm, info: str, wanted: tuple[str, str, int]
    ) -> None:
        made.attempt()
        slurm.tells(("7", "FAILED"), run=made.run)
        slurm.remembers(("7", "FAILED", info, 999, 1011), run=made.run)
        assert ending(status(made.run)) == wanted

    def test_accounting_may_lag_behind_the_queue(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt()
        slurm.remembers(("7", "RUNNING", "0:0", 999, 0), run=made.run)
        for ago, wanted in ((1, ("running", None, None)), (20, ("ended", "failed", 1))):
            end = int(time.time()) - ago
            slurm.queue.write_text(f"7|N/A|FAILED|None|900|900|{end}|{made.run.script}\n")
            assert ending(status(made.run)) == wanted
        slurm.remembers(("7", "FAILED", "0:9", 999, 1020), run=made.run)
        assert ending(status(made.run)) == ("ended", "failed", 137)

    def test_and_may_not_answer(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """Then nothing more is to be heard of an end that squeue reports."""
        made.attempt()
        slurm.program("sacct", "exit 1")
        end = int(time.time()) - 1
        slurm.queue.write_text(f"7|N/A|FAILED|None|900|900|{end}|{made.run.script}\n")
        assert ending(status(made.run)) == ("ended", "failed", 1)

    def test_of_a_rank_that_was_killed_it_may_not_know_yet_why(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """The step that was out of memory may be accounted for after its job."""
        made.attempt("0.0", "failed", 137)
        for ago, wanted in ((1, "running"), (20, "ended")):
            slurm.remembers(("7", "FAILED", "0:9", 999, int(time.time()) - ago), run=made.run)
            assert status(made.run).state == wanted

    def test_and_was_done_all_the_same(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt()
        slurm.tells(("7", "COMPLETED"), run=made.run)
        assert ending(status(made.run)) == ("ended", "done", 0)

    @pytest.mark.parametrize("end", [None, "cancelled"])
    def test_without_accounting(self, slurm: FakeSlurm, made: OnSlurm, end: str | None) -> None:
        """What squeue has forgotten too ends as its script says, and else nobody knows how."""
        made.attempt("0.0", end, 143)
        slurm.program("sacct", "echo disabled >&2; exit 1")
        now = status(made.run)
        assert now.ending == (end or "unknown") and now.over
        assert end or (now.reason or "").startswith("Slurm no longer knows job 7, and no ending")
        assert not (made.run.path / "attempts/0.0/scheduler.json").exists()
        assert slurm.questions() == ["squeue", "sacct"]

    def test_cancelled_before_it_began(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.tells(("7", "CANCELLED"), run=made.run)
        now = status(made.run)
        assert (*ending(now), now.members[0].attempts[0].started) == ("ended", "cancelled", 143, None)
        slurm.tells(run=made.run)
        assert ending(status(made.run)) == ("ended", "cancelled", 143)

    def test_by_somebody_else(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.remembers(("7", "CANCELLED by 65534", "0:0", 0, 1000), run=made.run)
        assert status(made.run).members[0].attempts[0].reason == "user nobody cancelled it"

    def test_it_never_wrote_anything(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.remembers(("7", "FAILED", "1:0", 999, 1000), run=made.run)
        now = status(made.run)
        assert ending(now) == ("ended", "failed", 1)
        reason = now.members[0].attempts[0].reason or ""
        assert reason.startswith(
            f"it failed and wrote nothing: its first node may not see {made.run.path}, and a"
        )

    def test_it_never_wrote_a_record(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.run.log_folder.mkdir()
        made.run.script_log(0).touch()
        slurm.remembers(("7", "FAILED", "1:0", 999, 1000), run=made.run)
        reason = status(made.run).members[0].attempts[0].reason
        assert reason == f"it failed before it wrote any record; see {made.run.path}/logs/job-0.log"

    def test_nor_failed(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """What was written on another host may need a while to be seen here."""
        for ago, unsettled in ((1, True), (100, False)):
            end = int(time.time()) - ago
            slurm.queue.write_text(f"7|N/A|COMPLETED|None|900|900|{end}|{made.run.script}\n")
            now = status(made.run)
            assert now.state == "unknown" and "has written nothing" in (now.reason or "")
            assert now.unsettled is unsettled

    def test_a_record_that_is_seen_late(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt()
        slurm.remembers(("7", "FAILED", "75:0", 999, 1000), run=made.run)
        assert status(made.run).ending == "walltime"
        made.write("attempts/0.0/ending.json", {"ending": "resume", "code": 75})
        assert ending(status(made.run)) == ("ended", "resume", 75)

    def test_all_of_it_while_squeue_was_asked(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        folder = made.run.path / "attempts/0.0"
        end = '{"ending": "done", "code": 0}'
        slurm.tells(("7", "COMPLETED"), run=made.run)
        slurm.program("squeue", f"mkdir {folder}; echo '{end}' >{folder}/ending.json; cat {slurm.queue}")
        assert ending(status(made.run)) == ("ended", "done", 0)

    def test_another_clusters_job_has_the_same_id(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        slurm.queue.write_text("7|N/A|RUNNING|None|900|900|N/A|/home/a/other.sh\n")
        assert status(made.run).state == "unknown"

    def test_a_launch_in_an_allocation_is_none_of_this(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.write("local.json", {"pid": 1, "host": os.uname().nodename})
        made.write("submission.json", {"job": "7", "time": 1})
        with locked(made.run.path / LOCK):
            assert status(made.run).state == "pending"
        assert slurm.questions() == []


class TestStartedAgain:
    def test_by_its_own_wish_though_its_script_gave_up(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """Slurm was hung, and did what it was asked to once it was back."""
        made.write("plan.json", {"name": "made", "scheduler": "slurm", "requeue_how": "requeue"})
        made.attempt("0.0", "walltime", 75, time=int(time.time()))
        slurm.program("squeue", "exit 1")
        assert status(made.run).unsettled  # nothing is over while nobody knows
        slurm.program("squeue", f"cat {slurm.queue}")
        slurm.tells(("7", "PENDING"), run=made.run, reason="BeginTime")
        now = status(made.run)
        assert (now.state, [one.ending for one in now.members[0].attempts]) == ("pending", ["resume"])
        made.attempt("0.1", "done", time=int(time.time()))
        slurm.questions()
        now = status(made.run)
        assert ending(now) == ("ended", "done", 0) and slurm.questions() == []
        assert [one.ending for one in now.members[0].attempts] == ["resume", "done"]

    def test_its_script_gave_up_for_good(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """Which one question tells, and no other within the time that Slurm remembers jobs for."""
        made.write("plan.json", {"name": "made", "scheduler": "slurm", "requeue_how": "requeue"})
        folder = made.attempt("0.0", "walltime", 75, time=(began := int(time.time()) - 100))
        slurm.tells(("7", "FAILED"), run=made.run)
        slurm.remembers(("7", "FAILED", "75:0", began, began + 10), run=made.run)
        assert ending(status(made.run)) == ("ended", "walltime", 75)
        slurm.questions()
        assert ending(status(made.run)) == ("ended", "walltime", 75) and slurm.questions() == []
        (folder / "scheduler.json").unlink()
        made.write("attempts/0.0/ending.json", {"ending": "walltime", "code": 75, "time": began - 3600})
        assert ending(status(made.run)) == ("ended", "walltime", 75) and slurm.questions() == []

    def test_by_its_own_wish(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "resume")
        slurm.tells(("7", "COMPLETING"), run=made.run)
        assert status(made.run).reason == "its next attempt is about to begin"
        slurm.tells(("7", "PENDING"), run=made.run, reason="BeginTime")
        now = status(made.run)
        assert (now.state, now.reason) == ("pending", "its begin time has not come (BeginTime)")
        made.attempt("0.1")
        slurm.tells(("7", "RUNNING"), run=made.run)
        assert [one.state for one in status(made.run).members[0].attempts] == ["ended", "running"]
        made.write("attempts/0.1/ending.json", {"ending": "done", "code": 0})
        assert ending(status(made.run)) == ("ended", "done", 0)

    def test_and_was_cancelled_as_it_waited(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "resume")
        slurm.tells(("7", "CANCELLED"), run=made.run)
        now = status(made.run)
        assert (now.ending, [one.ending for one in now.members[0].attempts]) == (
            "cancelled",
            ["resume", "cancelled"],
        )

    def test_and_was_not_queued_again(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """Accounting could not tell more of a script that has said how it ended."""
        made.attempt("0.0", "resume")
        slurm.tells(("7", "COMPLETED"), run=made.run)
        assert status(made.run).ending == "resume" and slurm.questions() == ["squeue"]

    def test_or_is_nowhere_to_be_found(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "resume")
        now = status(made.run)
        assert (now.ending, now.reason) == (
            "resume",
            "it stopped early and can be resumed: castoff resubmit made-1",
        )

    @pytest.mark.parametrize("end", [None, "cancelled", "failed"])
    @pytest.mark.parametrize("word", ["PREEMPTED", "NODE_FAIL", "REQUEUED"])
    def test_by_slurm(self, slurm: FakeSlurm, made: OnSlurm, word: str, end: str | None) -> None:
        """Its last word on the first start must not end the run, now or later."""
        made.attempt("0.0", end, 143)
        slurm.tells(("7", "PENDING"), run=made.run, reason="BeginTime")
        slurm.remembers(("7", word, "0:0", 999, 1012), ("7", "PENDING", "0:0", 0, 0), run=made.run)
        wanted = "node-failure" if word == "NODE_FAIL" else "preempted"
        for _ in range(2):
            now = status(made.run)
            assert (now.state, now.members[0].attempts[0].ending) == ("pending", wanted)
        made.attempt("0.1", "done", time=1100)
        now = status(made.run)
        assert [one.ending for one in now.members[0].attempts] == [wanted, "done"]
        assert ending(now) == ("ended", "done", 0)

    def test_accounting_may_know_of_its_second_start_alone(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """How that ended says nothing of the first."""
        made.attempt()
        made.attempt("0.1", "done", time=1100)
        slurm.remembers(("7", "COMPLETED", "0:0", 1099, 1110), run=made.run)
        now = status(made.run)
        assert [one.ending for one in now.members[0].attempts] == ["unknown", "done"]

    def test_by_slurm_and_cancelled_as_it_waited(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "cancelled", 143)
        slurm.tells(("7", "PENDING"), run=made.run)
        slurm.remembers(("7", "PREEMPTED", "0:0", 999, 1012), run=made.run)
        status(made.run)
        slurm.tells(("7", "CANCELLED"), run=made.run)
        now = status(made.run)
        assert [one.ending for one in now.members[0].attempts] == ["preempted", "cancelled"]

    REQUEUED: ClassVar[dict[str, Any]] = {"ending": "preempted", "code": 143, "job": "7", "requeued": True}

    def test_by_slurm_and_ended_as_it_waited(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt()
        made.write("attempts/0.0/scheduler.json", self.REQUEUED)
        slurm.tells(("7", "DEADLINE"), run=made.run)
        now = status(made.run)
        assert [one.ending for one in now.members[0].attempts] == ["preempted", "walltime"]

    @pytest.mark.parametrize("place", ["queue", "history"])
    def test_by_slurm_and_in_an_unknown_state(self, slurm: FakeSlurm, made: OnSlurm, place: str) -> None:
        """How its first start ended is on record."""
        made.attempt()
        made.write("attempts/0.0/scheduler.json", self.REQUEUED)
        if place == "queue":
            slurm.tells(("7", "REVOKED"), run=made.run)
        else:
            slurm.remembers(("7", "REVOKED", "0:0", 1000, 0), run=made.run)
        now = status(made.run)
        assert (now.state, [one.ending for one in now.members[0].attempts]) == ("unknown", ["preempted"])

    @pytest.mark.parametrize("end", ["cancelled", "failed"])  # a rank may hear of its end before the script
    def test_by_slurm_without_accounting(self, slurm: FakeSlurm, made: OnSlurm, end: str) -> None:
        made.attempt("0.0", end, 143)
        slurm.program("sacct", "exit 1")
        slurm.tells(("7", "PENDING"), run=made.run)
        now = status(made.run)
        (attempt,) = now.members[0].attempts
        assert (now.state, attempt.ending) == ("pending", "preempted")
        assert attempt.reason == "Slurm ended it, or lost its nodes, and requeued it"

    def test_it_began_since_squeue_was_asked(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        start = json.dumps({"job": "7", "host": "n1", "time": 1000})
        folder = made.run.path / "attempts/0.0"
        slurm.tells(("7", "PENDING"), run=made.run)
        poller = Poller()
        assert status(made.run, poller).state == "pending"
        slurm.program("squeue", f"mkdir {folder}; echo '{start}' >{folder}/start.json; cat {slurm.queue}")
        folder.mkdir()
        (folder / "start.json").write_text(start)
        assert status(made.run, poller).state == "running"

    def test_submitted_again(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """What was cancelled then stays so, whatever the new job does."""
        made.attempt("0.0", "cancelled", 143)
        sends = [{"job": "9", "offset": 0, "count": None}]
        earlier = [{"job": "7", "sends": [{"job": "7", "offset": 0, "count": None}]}]
        record = {"job": "9", "begin": {"0": 1}, "sends": sends, "earlier": earlier}
        made.write("submission.json", record)
        slurm.tells(("9", "PENDING"), run=made.run)
        now = status(made.run)
        assert (now.state, now.members[0].attempts[0].ending) == ("pending", "cancelled")
        made.attempt("0.1", "done", job="9")
        slurm.tells(("9", "COMPLETED"), run=made.run)
        assert status(made.run).ending == "done"

    def test_an_attempt_of_another_job_in_its_directory(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """As when somebody submits its script by hand."""
        made.attempt("0.0")
        made.attempt("0.1", job="9")
        slurm.tells(("7", "RUNNING"), run=made.run)
        now = status(made.run)
        assert (now.state, [one.attempt for one in now.members[0].attempts]) == ("running", [0])


class TestArrays:
    def test_each_member_for_itself(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, members=6)
        made.attempt("0.0", "done")
        made.attempt("1.0")
        made.attempt("2.0", "cancelled", 143)
        slurm.tells(("7_1", "RUNNING"), ("7_2", "TIMEOUT"), ("7_4", "PENDING"), run=made.run)
        slurm.remembers(("7_5", "NODE_FAIL", "0:0", 950, 960), run=made.run)
        now = status(made.run)
        states = [member.ending or member.state for member in now.members]
        assert states == ["done", "running", "walltime", "cancelled", "pending", "node-failure"]
        assert now.state == "running" and now.reason is None

    def test_another_cluster_has_an_array_of_the_same_id(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        """Members that are not in that array were not cancelled."""
        made = OnSlurm(tmp_path, members=2)
        slurm.queue.write_text("7|0|RUNNING|None|900|900|N/A|/home/a/other.sh\n")
        assert ending(status(made.run)) == ("unknown", "unknown", None)
        assert not list((made.run.path / "attempts").iterdir())

    def test_no_answer_of_accounting_cancels_no_member(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, members=2)
        slurm.tells(("7_0", "RUNNING"), run=made.run)
        slurm.program("sacct", "exit 1")
        assert [member.state for member in status(made.run).members] == ["running", "unknown"]
        slurm.program("sacct", f"cat {slurm.history}")
        slurm.remembers(("7_1", "NODE_FAIL", "0:0", 950, 960), run=made.run)
        assert [member.word for member in status(made.run).members] == ["running", "node-failure"]

    def test_in_several_jobs(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        sends = [
            {"job": "7", "offset": 0, "count": 2},
            {"job": "9", "offset": 2, "count": 2},
            {"job": "12", "offset": 4, "count": 1},
        ]
        made = OnSlurm(tmp_path, members=5, sends=sends)
        made.attempt("3.0", job="9")
        slurm.tells(
            ("7_0", "PENDING"),
            ("7_1", "PENDING"),
            ("9_0", "PENDING"),
            ("9_1", "RUNNING"),
            ("12_0", "PENDING"),
            run=made.run,
            reason="JobHeldUser",
        )
        now = status(made.run)
        assert [member.state for member in now.members] == [*3 * ["pending"], "running", "pending"]
        assert now.reason == "it is held (JobHeldUser); `scontrol release 7_0` releases it"

    def test_only_some_were_submitted_again(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        sends = [{"job": "9", "offset": 0, "count": 2, "members": [1, 3]}]
        made = OnSlurm(tmp_path, members=4, begin={"1": 1, "3": 1}, sends=sends)
        for member in range(4):
            made.attempt(f"{member}.0", "failed" if member % 2 else "done", member % 2)
        slurm.tells(("9_1", "PENDING"), ("9_3", "PENDING"), run=made.run)
        states = [member.ending or member.state for member in status(made.run).members]
        assert states == ["done", "pending", "done", "pending"]

    def test_some_were_never_sent(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = OnSlurm(tmp_path, members=2, sends=[{"job": "7", "offset": 0, "count": 1}])
        made.attempt("0.0", "done")
        now = status(made.run)
        assert (now.state, now.reason) == ("unknown", "nothing was submitted for it")
        with locked(made.run.path / LOCK):
            assert status(made.run).members[1].reason == "it is being submitted now"


class TestSilence:
    def failing(self, slurm: FakeSlurm) -> None:
        slurm.program(
            "squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"
        )

    def test_no_answer_is_not_an_ending(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        self.failing(slurm)
        now = status(made.run)
        assert (now.state, now.unsettled, now.over, now.final) == ("unknown", True, False, False)
        assert now.reason == (
            "Slurm could not be reached: squeue failed with exit code 1: "
            "slurm_load_jobs error: Unable to contact slurm controller"
        )
        made.attempt("0.0", "cancelled", 143)
        assert not status(made.run).over  # it may have been queued again
        assert condition_holds("afterany", made.run) is None
        assert slurm.questions() == 3 * ["squeue"]

    def test_its_record_is_enough(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        self.failing(slurm)
        made.attempt("0.0", "failed", 3)
        assert ending(status(made.run)) == ("ended", "failed", 3)

    def test_where_there_is_no_slurm(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """To ask again would not help, so nobody waits."""
        (slurm.folder / "squeue").unlink()
        now = wait(made.run)
        assert (now.state, now.unsettled) == ("unknown", False)
        assert now.reason == (
            "Slurm could not be reached: squeue is not on PATH here; ask on a login node of the machine"
        )
        made.attempt("0.0", "cancelled", 143)
        assert ending(status(made.run)) == ("ended", "cancelled", 143)

    def test_a_wait_outlasts_it(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(poller, "_SHORTEST_PAUSE", 0.0)
        monkeypatch.setattr(poller, "_LONGEST_PAUSE", 0.0)
        self.failing(slurm)
        looked = poll([made.run])
        assert [next(looked)[0].state for _ in range(2)] == 2 * ["unknown"]
        slurm.program("squeue", f"cat {slurm.queue}")
        slurm.tells(("7", "CANCELLED"), run=made.run)
        assert [now[0].ending for now in looked] == ["cancelled"]


SENT_AGAIN = {
    "scheduler": "slurm",
    "job": "8",
    "time": 1100.0,
    "begin": {"0": 1},
    "sends": [{"job": "8", "offset": 0, "count": None, "time": 1100.0}],
}
"""How a run was submitted whose first attempt has ended."""


class TestResubmitted:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resubmission, "_PATIENCE", 0.0)

    def test_what_is_being_cleared_away_is_waited_for(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resubmission, "_PATIENCE", 60.0)
        monkeypatch.setattr("time.sleep", lambda _: slurm.tells(("7", "FAILED"), run=made.run))
        made.attempt("0.0", "failed", 3)
        slurm.program("sbatch", "echo 9")
        slurm.program("scontrol", "true")
        slurm.tells(("7", "COMPLETING"), run=made.run)
        assert resubmit(made.run) == {0: 1}

    def test_nothing_while_the_queue_has_a_job_of_its_script(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        """Whatever is said of the id that its records have."""
        made.attempt("0.0", "failed", 3)
        slurm.program("sbatch", "echo 9")
        slurm.program("scontrol", "true")
        slurm.tells(("8", "RUNNING"), run=made.run)
        assert status(made.run).over
        with pytest.raises(CastoffError, match=r"Slurm still has a job of it: 8; .*: scancel 8$"):
            resubmit(made.run)
        assert "sbatch" not in slurm.questions()
        slurm.tells(("8", "COMPLETED"), run=made.run)
        assert resubmit(made.run) == {0: 1} and made.run.job == "9"

    @pytest.mark.parametrize("place", ["queue", "history"])
    @pytest.mark.parametrize("begun", [False, True])
    @pytest.mark.parametrize(
        ("word", "meaning"),
        [
            ("FROBNICATED", ", a state that castoff does not know"),
            ("REVOKED", ": another cluster of its federation took it"),
        ],
    )
    def test_nothing_while_its_job_is_in_an_unknown_state(
        self, slurm: FakeSlurm, made: OnSlurm, place: str, begun: bool, word: str, meaning: str
    ) -> None:
        """What is listed is not gone, whatever its state is called."""
        slurm.program("sbatch", "echo 9")
        if begun:
            made.attempt()
        if place == "queue":
            slurm.tells(("7", word), run=made.run)
        else:
            slurm.remembers(("7", word, "0:0", 1000, 0), run=made.run)
        now = status(made.run)
        assert (now.state, now.over, now.members[0].state) == ("unknown", False, "unknown")
        assert now.reason == f"Slurm reports job 7 as {word}{meaning}; it may be running"
        with pytest.raises(CastoffError, match=f"{word}.*; members that may be running are not restarted"):
            resubmit(made.run)
        assert "sbatch" not in slurm.questions()

    def test_nothing_while_another_job_of_it_is_in_an_unknown_state(
        self, slurm: FakeSlurm, made: OnSlurm
    ) -> None:
        made.attempt("0.0", "failed", 3)
        slurm.program("sbatch", "echo 9")
        slurm.program("scontrol", "true")
        slurm.tells(("8", "FROBNICATED"), run=made.run)
        with pytest.raises(CastoffError, match="Slurm still has a job of it: 8"):
            resubmit(made.run)
        assert "sbatch" not in slurm.questions()

    @pytest.mark.parametrize(
        ("directive", "all_hosts", "option"),
        [("", False, "n2,n3"), ("#SBATCH --exclude=n[7-9]\n", False, "n[7-9],n2,n3"), ("", True, None)],
    )
    def test_hosts_that_were_set_aside_are_excluded(
        self, slurm: FakeSlurm, made: OnSlurm, directive: str, all_hosts: bool, option: str | None
    ) -> None:
        made.run.script.write_text(f"#SBATCH --nodes=1\n{directive}# === castoff for slurm and srun\n")
        made.attempt("0.0", "failed", 3)
        (made.run.path / "set-aside").mkdir()
        for host in ("n2", "n3", "-n"):
            made.write(f"set-aside/{host}.json", {"host": host, "reason": "it does not answer", "attempt": 0})
        slurm.program("sbatch", "echo 9")
        slurm.program("scontrol", "true")
        resubmit(made.run, all_hosts=all_hosts)
        (sent,) = [line for line in slurm.asked.read_text().splitlines() if line.startswith("sbatch ")]
        found = [word.partition("=")[2] for word in sent.split() if word.startswith("--exclude=")]
        assert found == ([] if option is None else [option])
        assert submission_of(made.run).excluded == ([] if option is None else ["n2", "n3"])

    def test_too_few_nodes_beside_those_that_are_excluded(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "failed", 3)
        made.write("submission.json", {**SENT_AGAIN, "excluded": ["n2", "n3"]})
        words = "no node has what it asks for (BadConstraints)"
        excludes = "it excludes n2, n3, set aside by earlier jobs; castoff resubmit --all-hosts uses them"
        all_hosts = f"{words}; {excludes}"
        slurm.tells(("8", "PENDING"), run=made.run, reason="BadConstraints")
        assert status(made.run).reason == all_hosts
        slurm.tells(("8", "FAILED"), run=made.run, reason="BadConstraints")
        for _ in range(2):
            now = status(made.run)
            assert (*ending(now), now.members[0].attempts[1].reason) == ("ended", "failed", 1, all_hosts)
            slurm.tells(run=made.run)

    def test_sbatch_that_refuses_to_exclude_hosts(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "failed", 3)
        (made.run.path / "set-aside").mkdir()
        made.write("set-aside/n2.json", {"host": "n2", "reason": "it does not answer", "attempt": 0})
        slurm.program("sbatch", "echo Invalid node name specified >&2; exit 1")
        slurm.program("scontrol", "true")
        with pytest.raises(CastoffError, match=r"(?m)^castoff resubmit --all-hosts does not exclude n2$"):
            resubmit(made.run)

    def test_nothing_while_it_does_not_answer(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        made.attempt("0.0", "failed", 3)
        slurm.program("sbatch", "echo 9")
        slurm.program("squeue", "echo busy >&2; exit 1")
        with pytest.raises(CastoffError, match="whether a job of it is left: squeue failed with exit code 1"):
            resubmit(made.run)
        assert "sbatch" not in slurm.questions()


class TestLookingAgain:
    def test_slurm_is_asked_more_and_more_seldom(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = [0.0]
        asked: list[float] = []

        def answer(
            argv: list[str], patience: float, environ: object, read: Callable[[Page], list[JobInfo]]
        ) -> list[JobInfo]:
            asked.append(clock[0])
            return read(iter([slurm.queue.read_text()]))

        monkeypatch.setattr(questions, "parsed_answer", answer)
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
        slurm.tells(("7", "PENDING"), run=made.run, reason="Priority")
        assert wait(made.run, timeout=600).state == "pending"
        pauses = [after - before for before, after in pairwise(asked)]
        assert pauses[0] == pytest.approx(2, abs=0.3) and max(pauses) == pytest.approx(31, abs=1.1)
        assert len(asked) < 35

    @pytest.mark.parametrize("interval", [1, 60])
    def test_many_looks_at_many_runs_are_one_question_an_interval(
        self, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int
    ) -> None:
        """The longest that a site of the runs asks for, and at least castoff's own."""
        clock = [1000.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])
        index, lines = Index(tmp_path / "runs.jsonl"), []
        for number in range(3):
            job = str(70 + number)
            made = OnSlurm(tmp_path / job, sends=[{"job": job, "count": None}], job=job)
            plan = {"name": "made", "site": "big", "scheduler": "slurm"}
            made.write("plan.json", {**plan, "poll_interval": interval if number == 1 else 0})
            index.add(made.run, "made")
            lines.append(f"{job}|N/A|PENDING|Priority|900|{clock[0]:.0f}|N/A|{made.run.script}\n")
        slurm.queue.write_text("".join(lines))
        patient = Poller()
        for _ in range(20):
            rows = Overview.asked(index, poller=patient).rows
            assert [(row.summary.state, row.summary.expected_start) for row in rows] == 3 * [
                ("pending", 1000)
            ]
            clock[0] += 0.09
        assert slurm.questions() == ["squeue"]
        for _ in range(21):
            Overview.asked(index, poller=patient)
            clock[0] += max(interval, 2) / 20
        assert slurm.questions() == ["squeue"]

    def test_accounting_that_does_not_answer_is_asked_as_seldom(
        self, slurm: FakeSlurm, made: OnSlurm
    ) -> None:
        made.attempt()
        slurm.program("sacct", "exit 1")
        patient = Poller()
        for _ in range(3):
            assert status(made.run, patient).state == "unknown"
        assert slurm.questions() == ["squeue", "sacct"]

    def test_a_new_job_makes_a_question_due(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last answer is older than the job, and so says nothing of it."""
        monkeypatch.setattr(poller, "_SHORTEST_PAUSE", 1000.0)
        patient = Poller()
        slurm.tells(("7", "PENDING"), run=made.run)
        assert status(made.run, patient).state == "pending"
        slurm.tells(("7", "RUNNING"), run=made.run)
        assert status(made.run, patient).state == "pending"
        assert slurm.questions() == ["squeue"]
        sends = [{"job": "9", "offset": 0, "count": None, "time": 899.0}]
        made.write("submission.json", {"scheduler": "slurm", "job": "9", "time": 899.0, "sends": sends})
        slurm.tells(("9", "RUNNING"), run=made.run)
        assert status(made.run, patient).state == "running"
        assert slurm.questions() == ["squeue"]

    def test_who_owes_an_answer(self, slurm: FakeSlurm, made: OnSlurm) -> None:
        patient = Poller()
        seen = slurm.folder / "seen"
        slurm.program("squeue", f"while [ ! -e {seen} ]; do sleep 0.01; done; exit 1")
        thread = threading.Thread(target=status, args=(made.run, patient))
        thread.start()
        until(patient.unanswered)
        seen.touch()
        thread.join()
        assert patient.unanswered().keys() == {"Slurm"}  # it has failed

    def test_its_own_record_is_seen_between(
        self, slurm: FakeSlurm, made: OnSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(poller, "_SHORTEST_PAUSE", 1000.0)
        made.attempt()
        slurm.tells(("7", "RUNNING"), run=made.run)
        looked = poll([made.run])
        assert next(looked)[0].state == "running"
        made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0})
        assert [now[0].ending for now in looked] == ["done"]
        assert slurm.questions() == ["squeue"]


class TestOfAScriptThatStoodAlone:
    @pytest.fixture
    def alone(self, made: OnSlurm) -> OnSlurm:
        for name in ("plan.json", "submission.json"):
            (made.run.path / name).unlink()
        made.attempt()
        return made

    def test_slurm_is_asked_for_it(self, slurm: FakeSlurm, alone: OnSlurm) -> None:
        slurm.queue.write_text("7|N/A|RUNNING|None|900|900|N/A|/home/a/job.sh\n")
        now = status(alone.run)
        assert (now.state, now.job, now.scheduler) == ("running", "7", "slurm")
        slurm.queue.write_text("7|N/A|NODE_FAIL|None|900|900|950|/home/a/job.sh\n")
        assert ending(status(alone.run)) == ("ended", "node-failure", 1)

    def test_an_array(self, slurm: FakeSlurm, alone: OnSlurm) -> None:
        alone.run.script.write_text(
            "#SBATCH --array=0-2\nexport CASTOFF_ARRAY_COUNT=3\n# === castoff for slurm\n"
        )
        slurm.queue.write_text(
            "7|0|RUNNING|None|900|900|N/A|/home/a/job.sh\n7|1-2%1|PENDING|None|900|N/A|N/A|/home/a/job.sh\n"
        )
        assert [one.state for one in status(alone.run).members] == ["running", "pending", "pending"]

    @pytest.mark.parametrize("members", [1, 3])
    def test_it_has_not_said_yet_which_job_it_is(
        self, slurm: FakeSlurm, alone: OnSlurm, members: int
    ) -> None:
        """No scheduler was asked about it, so it is not said to have forgotten it."""
        alone.run.script.write_text(f"export CASTOFF_ARRAY_COUNT={members}\n# === castoff for slurm\n")
        folder = alone.run.path / "attempts" / "0.0"
        (folder / "start.json").unlink()
        now = status(alone.run)
        assert (now.state, now.over, len(now.members)) == ("unknown", False, members)
        assert now.reason is not None and now.reason.startswith("its script has just begun and ")
        os.utime(folder, (900, 900))  # it was killed right then
        now = status(alone.run)
        assert (now.state, now.over, now.reason) == (
            "unknown",
            True,
            "its script recorded no job, so Slurm cannot be asked about it; read the logs",
        )

    def test_it_says_so_while_slurm_is_asked(self, slurm: FakeSlurm, alone: OnSlurm) -> None:
        """Of all the user's jobs, the answer was searched for those that were known before."""
        record = alone.run.path / "attempts" / "0.0" / "start.json"
        record.rename(late := record.with_name(".late"))
        slurm.queue.write_text("7|N/A|RUNNING|None|900|900|N/A|/home/a/alone.sh\n")
        slurm.program("squeue", f"[ ! -e {late} ] || mv {late} {record}; cat {slurm.queue}")
        now = status(alone.run)
        assert (now.state, now.job) == ("running", "7")


class TestUnclear:
    def lost(self, tmp_path: Path, **more: Any) -> OnSlurm:
        return OnSlurm(tmp_path, job=None, sends=[{"job": None, "count": None, "time": 899.0, **more}])

    def test_it_is_being_submitted(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path)
        with locked(made.run.path / LOCK):
            now = status(made.run)
        assert (now.state, now.reason) == ("pending", "it is being submitted now")
        assert slurm.questions() == []

    def test_it_arrived(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path)
        slurm.tells(("12", "PENDING"), run=made.run)
        now = status(made.run)
        assert (now.state, now.job, made.run.job) == ("pending", "12", "12")
        assert slurm.questions() == ["squeue"]

    def test_and_is_over_long_since(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path)
        slurm.remembers(("12", "NODE_FAIL", "0:0", 1000, 1100), run=made.run)
        assert ending(status(made.run)) == ("ended", "node-failure", 1)
        assert made.run.job == "12"

    def test_its_own_records_settle_it(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path)
        made.attempt("0.0", "done", job="12")
        assert ending(status(made.run)) == ("ended", "done", 0)
        assert made.run.job == "12"

    def test_it_did_not(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path, unclear="Socket timed out")
        for _ in range(2):  # too soon after each other
            now = status(made.run)
            assert (now.state, now.unsettled, now.over) == ("unknown", True, False)
        assert now.reason == (
            "there was no answer, so it may or may not have been submitted; ask again in a few seconds"
        )
        record = submission_of(made.run)
        assert record.sends[0].asked
        record.sends[0].asked -= 5
        made.run.write_submission(record)
        now = status(made.run)
        assert (*ending(now), now.reason) == (
            "ended",
            "failed",
            1,
            "it could not be submitted: there was no answer: Socket timed out; "
            "the queue, queried twice, has no such job",
        )

    def test_silence_decides_nothing(self, slurm: FakeSlurm, tmp_path: Path) -> None:
        made = self.lost(tmp_path, asked=1.0)
        slurm.program("squeue", "exit 1")
        assert status(made.run).unsettled
        assert submission_of(made.run).sends[0] == Send(time=899.0, asked=1.0)
