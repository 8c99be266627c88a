"""The states of runs on PBS, from records made by hand and from what qstat prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.watch import status, statuses, wait
from castoff.launcher.submission import resubmit as resubmission
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.resubmit import resubmit

from ...fake_pbs import FakePbs, OnPbs


@pytest.fixture
def pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePbs:
    return FakePbs(tmp_path, monkeypatch)


@pytest.fixture
def made(tmp_path: Path) -> OnPbs:
    return OnPbs(tmp_path)


def ending(now: RunStatus) -> tuple[str, str | None, int | None]:
    return now.state, now.ending, now.code


UNKNOWN = "echo 'qstat: Unknown Job Id 7.head' >&2; exit 153"
QUEUED: dict[str, Any] = {"job_state": "Q", "Hold_Types": "n"}
RUNNING: dict[str, Any] = {"job_state": "R", "stime": "Fri Nov 20 12:00:00 2026"}


def finished(code: int | None, **further: Any) -> dict[str, Any]:
    info: dict[str, Any] = {"job_state": "F", **further}
    return info if code is None else {**info, "Exit_status": code}


class TestWhatIsAsked:
    def test_no_query_where_the_record_is_complete(self, pbs: FakePbs, made: OnPbs) -> None:
        made.attempt("0.0", "done")
        assert status(made.run).ending == "done" and pbs.questions() == []

    def test_once_for_many_runs(self, pbs: FakePbs, tmp_path: Path) -> None:
        runs = []
        for number in range(5):
            send = {"job": f"7{number}.head", "offset": 0, "count": None}
            runs.append(OnPbs(tmp_path / str(number), job=send["job"], sends=[send]).run)
        pbs.tells({"70.head": RUNNING}, runs[0])
        assert [one.state for one in statuses(runs)] == ["running", *4 * ["unknown"]]
        assert pbs.questions() == ["qstat -x -t -f -w 70.head 71.head 72.head 73.head 74.head"]

    def test_a_server_without_a_history(self, pbs: FakePbs, made: OnPbs) -> None:
        said = "qstat: PBS is not configured to maintain job history"
        pbs.program("qstat", f'[ "$1" != -x ] || {{ echo "{said}" >&2; exit 0; }}; cat {pbs.answer}')
        pbs.tells({"7.head": QUEUED}, made.run)
        assert status(made.run).state == "pending"
        made.attempt("0.0", "failed", 137)
        pbs.program("qstat", f'[ "$1" != -x ] || {{ echo "{said}" >&2; exit 255; }}; {UNKNOWN}')
        assert ending(status(made.run)) == ("ended", "failed", 137)

    def test_a_server_that_does_not_answer(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.program("qstat", "echo 'qstat: cannot connect to server head (errno=111)' >&2; exit 111")
        now = status(made.run)
        assert (now.state, now.unsettled) == ("unknown", True)
        assert (
            now.reason is not None
            and "PBS could not be reached: qstat failed with exit code 111" in now.reason
        )


class TestCancelledWithoutAHistory:
    """What castoff itself has cancelled and the server has forgotten at once; nothing else is guessed."""

    @pytest.mark.parametrize("attempts", [0, 1])
    def test_is_cancelled(self, pbs: FakePbs, made: OnPbs, attempts: int) -> None:
        for number in range(attempts):
            made.attempt(f"0.{number}")
        pbs.tells({"7.head": RUNNING if attempts else QUEUED}, made.run)
        pbs.selects("7.head")
        pbs.program("qdel", f": >{pbs.answer}")
        (request,) = end([made.run])
        assert (request.problem, request.is_active) == (None, False)
        assert ending(status(made.run)) == ("ended", "cancelled", 143)
        pbs.questions()
        assert ending(status(made.run)) == ("ended", "cancelled", 143) and pbs.questions() == []

    def test_its_own_record_counts_more(self, pbs: FakePbs, made: OnPbs) -> None:
        folder = made.attempt()
        pbs.tells({"7.head": RUNNING}, made.run)
        record = '{"ending": "done", "code": 0, "time": 1010}'
        pbs.program("qdel", f": >{pbs.answer}; echo '{record}' >{folder}/ending.json")
        end([made.run])
        assert ending(status(made.run)) == ("ended", "done", 0)

    def test_a_rank_that_ends_of_the_signal_before_its_script_has_it(self, pbs: FakePbs, made: OnPbs) -> None:
        """The script then records a failure, since nobody had told it to stop."""
        folder = made.attempt()
        pbs.tells({"7.head": RUNNING}, made.run)
        record = '{"ending": "failed", "code": 143, "time": 1010}'
        pbs.program("qdel", f": >{pbs.answer}; echo '{record}' >{folder}/ending.json")
        end([made.run])
        assert ending(status(made.run)) == ("ended", "cancelled", 143)

    def test_not_what_pbs_refused_to_end(self, pbs: FakePbs, made: OnPbs) -> None:
        made.attempt()
        pbs.tells({"7.head": RUNNING}, made.run)
        pbs.program("qdel", "echo 'qdel: Unauthorized Request  7.head' >&2; exit 15")
        (request,) = end([made.run])
        assert request.problem is not None and "Unauthorized" in request.problem
        pbs.tells({})
        assert ending(status(made.run)) == ("unknown", "unknown", None)


class TestInAnUnknownState:
    @pytest.mark.parametrize("begun", [False, True])
    @pytest.mark.parametrize(
        ("word", "meaning"), [("M", ": it was moved to another server"), ("Y", ", a state that castoff")]
    )
    def test_it_is_listed_and_nothing_is_sent(
        self, pbs: FakePbs, made: OnPbs, begun: bool, word: str, meaning: str
    ) -> None:
        if begun:
            made.attempt()
        pbs.tells({"7.head": {"job_state": word}}, made.run)
        now = status(made.run)
        assert (now.state, now.over) == ("unknown", False)
        assert f"PBS reports job 7.head as {word}{meaning}" in (now.reason or "")
        with pytest.raises(CastoffError, match="members that may be running are not restarted"):
            resubmit(made.run)
        assert not any(one.startswith("qsub") for one in pbs.questions())


class TestACopySubmittedBeforehand:
    HELD: ClassVar[dict[str, Any]] = {"job_state": "H", "Hold_Types": "s", "depend": "afternotok:7.head@head"}

    def begun(self, made: OnPbs, *own: Any) -> None:
        made.attempt("0.0", *own)
        made.write("attempts/0.0/next.json", {"job": "8.head", "time": 1000})

    def test_waits_beside_its_job(self, pbs: FakePbs, made: OnPbs) -> None:
        self.begun(made)
        pbs.tells({"7.head": RUNNING, "8.head": self.HELD}, made.run)
        now = status(made.run)
        assert (now.state, len(now.members[0].attempts)) == ("running", 1)

    def test_the_submitted_copy_is_pending(self, pbs: FakePbs, made: OnPbs) -> None:
        self.begun(made, "resume", 75)
        pbs.tells({"7.head": finished(75), "8.head": QUEUED}, made.run)
        now = status(made.run)
        assert (now.state, [one.ending for one in now.members[0].attempts]) == ("pending", ["resume"])

    @pytest.mark.parametrize("own", [("done", 0), ("failed", 3), ("walltime", 75)])
    def test_follows_nothing_else(self, pbs: FakePbs, made: OnPbs, own: tuple[str, int]) -> None:
        """Its job's own record is enough, whether or not PBS still has the copy."""
        self.begun(made, *own)
        assert ending(status(made.run)) == ("ended", *own) and pbs.questions() == []


class TestLeftOut:
    """A job that qstat was asked about and says nothing of, not even that it does not know it."""

    @pytest.fixture
    def two(self, tmp_path: Path) -> list[OnPbs]:
        made = []
        for number in (7, 8):
            send = {"job": f"{number}.head", "offset": 0, "count": None}
            made.append(OnPbs(tmp_path / str(number), job=send["job"], sends=[send]))
        return made

    def first_alone(self, pbs: FakePbs, first: dict[str, Any], made: OnPbs) -> None:
        """As `qstat -F json` since 2023-12: the first one's alone, and exit code 0."""
        pbs.tells({"7.head": first}, made.run)
        pbs.program("qstat", f"cat {pbs.answer}")

    def test_is_not_unknown_for_good(self, pbs: FakePbs, two: list[OnPbs]) -> None:
        self.first_alone(pbs, finished(0), two[0])
        two[0].attempt("0.0", "done")
        two[1].attempt("0.0", job="8.head")
        two[0].attempt("0.1")  # has it asked about
        known, left_out = statuses([one.run for one in two])
        assert ending(known)[0] == "ended"
        assert (left_out.state, left_out.unsettled, left_out.over) == ("unknown", True, False)
        assert left_out.reason is not None and "qstat's answer leaves out job 8.head" in left_out.reason

    def test_is_waited_for(self, pbs: FakePbs, two: list[OnPbs], monkeypatch: pytest.MonkeyPatch) -> None:
        def sleep(_: float) -> None:
            if not (two[1].run.path / "attempts" / "0.0").exists():  # subprocess sleeps, too
                two[1].attempt("0.0", "done", job="8.head")

        self.first_alone(pbs, RUNNING, two[0])
        monkeypatch.setattr("castoff.launcher.clock.sleep", sleep)
        assert wait(two[1].run).ending == "done"

    def test_ends_no_chain(self, pbs: FakePbs, tmp_path: Path) -> None:
        made = OnPbs(tmp_path, chain=2)
        made.attempt("0.0", "resume", 75)
        self.first_alone(pbs, finished(75), made)
        assert (status(made.run).state, status(made.run).unsettled) == ("unknown", True)
        pbs.tells({"7.head": finished(75), "8.head": RUNNING}, made.run)
        assert status(made.run).state == "pending"

    @pytest.mark.parametrize(("word", "code"), [("resume", 75), ("failed", 1), ("done", 0)])
    def test_nor_does_a_link_that_may_not_have_arrived(
        self, pbs: FakePbs, tmp_path: Path, word: str, code: int
    ) -> None:
        """Of a chain: it would run beside what is sent again, or in a directory that was removed."""
        sends = [{"job": "7.head", "link": 0}, {"link": 1, "time": 1009.0, "unclear": "end of file"}]
        made = OnPbs(tmp_path, sends=sends)
        made.attempt("0.0", word, code)
        pbs.tells({}, made.run)
        now = status(made.run)
        assert (now.state, now.unsettled, now.final) == ("unknown", True, False)
        assert now.reason is not None and "it may or may not have been submitted" in now.reason

    def test_is_not_started_again(self, pbs: FakePbs, two: list[OnPbs]) -> None:
        self.first_alone(pbs, RUNNING, two[0])
        with pytest.raises(
            CastoffError, match=r"leaves out job 8\.head; members that may be running are not"
        ):
            resubmit(two[1].run)
        assert not any(line.startswith("qsub") for line in pbs.questions())

    def test_is_not_taken_for_cancelled(self, pbs: FakePbs, two: list[OnPbs]) -> None:
        self.first_alone(pbs, RUNNING, two[0])
        (one,) = end([two[1].run])
        assert one.problem is not None
        assert "could not be reached; the run is still active: qstat's answer leaves" in one.problem

    @pytest.mark.parametrize("lines", [1, 2, 3, 6])
    def test_so_is_one_that_is_reported_of_in_part(self, pbs: FakePbs, tmp_path: Path, lines: int) -> None:
        """An answer that ends anywhere: members that are not in it were not cancelled."""
        made = OnPbs(tmp_path, members=2)
        array = {"job_state": "B", "array_indices_submitted": "0-1"}
        pbs.tells({"7[].head": array, "7[0].head": RUNNING, "7[1].head": RUNNING}, made.run)
        pbs.program("qstat", f"head -n -{lines} {pbs.answer}")
        assert (status(made.run).state, status(made.run).unsettled) == ("unknown", True)

    def test_others_servers_are_another_matter(self, pbs: FakePbs, two: list[OnPbs]) -> None:
        """One that is not reached says nothing of its own jobs; those of others are told of."""
        pbs.tells({"8.head": RUNNING}, two[1].run)
        said = "qstat: cannot connect to server head (errno=15010)"
        pbs.program("qstat", f"echo '{said}' >&2; cat {pbs.answer}; exit 255")
        first, second = statuses([one.run for one in two])
        assert first.unsettled and first.reason is not None and said in first.reason
        assert second.state == "running"


class TestStartedAgain:
    """Nothing is, while the queue has a job of its script, whatever is said of the id."""

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resubmission, "_PATIENCE", 0.0)

    def test_what_the_queue_has(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"8.head": QUEUED}, made.run)
        pbs.selects("8.head")
        assert (status(made.run).state, status(made.run).unsettled) == ("unknown", False)
        with pytest.raises(CastoffError, match=r"PBS still has a job of it: 8\.head; .*: qdel 8\.head"):
            resubmit(made.run)
        assert not any(line.startswith("qsub") for line in pbs.questions())

    def test_what_only_qselect_knows_of(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.selects("7.head")
        with pytest.raises(CastoffError, match=r"qselect knows of job 7\.head, but qstat does not"):
            resubmit(made.run)

    def test_where_qselect_does_not_answer(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.program("qselect", "echo 'qselect: cannot connect to server head' >&2; exit 162")
        with pytest.raises(CastoffError, match="could not be asked whether a job of it is left: qselect"):
            resubmit(made.run)

    def test_what_is_gone(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"6.head": {**RUNNING, "Submit_arguments": "/another/job.sh"}})
        pbs.selects("6.head")
        assert resubmit(made.run) == {0: 0} and made.run.job == "9.head"


class TestStates:
    @pytest.mark.parametrize(
        ("info", "reason"),
        [
            (QUEUED, "PBS has not looked at it yet"),
            (
                {**QUEUED, "comment": "Not Running: Insufficient amount of resource: ncpus"},
                "PBS says: Not Running: Insufficient amount of resource: ncpus",
            ),
            (
                {"job_state": "H", "Hold_Types": "u"},
                "it is held (Hold_Types u); `qrls -h u 7.head` releases it",
            ),
            (
                {"job_state": "H", "Hold_Types": "s", "depend": "afterok:6.head@head"},
                "it waits for another job (afterok:6.head@head)",
            ),
            ({"job_state": "W", "Hold_Types": "n"}, "its begin time has not come"),
        ],
    )
    def test_waiting(self, pbs: FakePbs, made: OnPbs, info: dict[str, Any], reason: str) -> None:
        pbs.tells({"7.head": info}, made.run)
        now = status(made.run)
        assert (*ending(now), now.reason) == ("pending", None, None, reason)

    def test_running(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"7.head": RUNNING}, made.run)
        assert status(made.run).state == "running"
        made.attempt()
        assert status(made.run).members[0].attempts[0].state == "running"

    @pytest.mark.parametrize(
        ("own", "code", "expected"),
        [
            (None, -29, ("walltime", 143)),  # killed before it could write anything
            (("cancelled", 143), -29, ("walltime", 143)),
            (("cancelled", 143), 271, ("cancelled", 143)),
            (None, 265, ("cancelled", 137)),
            (None, -27, ("out-of-memory", 137)),
            (("failed", 137), 137, ("failed", 137)),
            (None, -2, ("failed", 1)),
            (("cancelled", 143), -20, ("node-failure", 143)),
            (None, -4, ("node-failure", 1)),
            (None, -11, ("preempted", 143)),
            (None, -28, ("failed", 1)),
            (None, -99, ("failed", 1)),
            (None, 3, ("failed", 3)),
        ],
    )
    def test_endings(
        self,
        pbs: FakePbs,
        made: OnPbs,
        own: tuple[str, int] | None,
        code: int,
        expected: tuple[str, int],
    ) -> None:
        made.attempt("0.0", *(own or ()))
        pbs.tells({"7.head": finished(code)}, made.run)
        assert ending(status(made.run)) == ("ended", *expected)
        pbs.tells({})
        assert ending(status(made.run)) == ("ended", *expected)  # what was learnt is kept

    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (-20, "its first node was lost (Exit_status -20)"),
            (-1, "PBS could not start it (Exit_status -1)"),
            (-29, None),
            (-99, "PBS ended it (Exit_status -99): Job run at noon and failed"),
        ],
    )
    def test_why(self, pbs: FakePbs, made: OnPbs, code: int, reason: str | None) -> None:
        """PBS says of every one that has begun when it was run."""
        made.attempt()
        pbs.tells({"7.head": finished(code, comment="Job run at noon and failed")}, made.run)
        assert status(made.run).members[0].attempts[0].reason == reason

    def test_one_that_pbs_could_not_start_has_no_log(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"7.head": finished(-1)}, made.run)
        assert status(made.run).members[0].attempts[0].reason == "PBS could not start it (Exit_status -1)"

    @pytest.mark.parametrize(
        ("owner", "substate", "names", "expected"),
        [
            ("root@head", 92, [], "unknown"),
            ("root@head", 91, [], "cancelled"),
            ("root@head", 92, ["ended/0"], "done"),
            ("rooted@head", 92, [], "done"),
        ],
    )
    def test_killed_as_root(
        self, pbs: FakePbs, made: OnPbs, owner: str, substate: int, names: list[str], expected: str
    ) -> None:
        """Its Exit_status is 0 whatever has ended it."""
        folder = made.attempt()
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        pbs.tells({"7.head": finished(0, Job_Owner=owner, substate=substate)}, made.run)
        assert status(made.run).ending == expected

    @pytest.mark.parametrize(("substate", "expected"), [(91, "cancelled"), (92, "failed")])
    def test_deleted_when_its_rank_died_of_the_signal_first(
        self, pbs: FakePbs, made: OnPbs, substate: int, expected: str
    ) -> None:
        """Then the script records a failed rank, and ends by itself."""
        made.attempt("0.0", "failed", 143)
        pbs.tells({"7.head": finished(0, substate=substate)}, made.run)
        assert ending(status(made.run)) == ("ended", expected, 143)

    def test_what_it_waited_for_can_no_longer_be(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"7.head": finished(None, depend="afterok:6.head@head")}, made.run)
        now = status(made.run)
        assert ending(now) == ("ended", "cancelled", 143)
        (attempt,) = now.members[0].attempts
        assert attempt.reason is not None and "its condition can no longer be met" in attempt.reason

    def test_members_of_an_array(self, pbs: FakePbs, tmp_path: Path) -> None:
        made = OnPbs(tmp_path, members=3)
        made.attempt("0.0", "done", job="7[].head")
        made.attempt("1.0", job="7[].head")
        untold = {"Submit_arguments": None}  # qstat tells it of the array alone
        pbs.tells(
            {
                "7[].head": {"job_state": "B", "array": "True"},
                "7[0].head": {"job_state": "X", "Exit_status": 0, **untold},
                "7[1].head": {**RUNNING, **untold},
                "7[2].head": {**QUEUED, **untold},
            },
            made.run,
        )
        assert [one.state for one in status(made.run).members] == ["ended", "running", "pending"]

    def test_members_that_were_cancelled_before_they_began(self, pbs: FakePbs, tmp_path: Path) -> None:
        """Of them PBS tells its array's Exit_status."""
        made = OnPbs(tmp_path, members=2)
        made.attempt("0.0", job="7[].head")
        array = finished(1, array="True", array_indices_submitted="0-1", substate=91)
        begun = finished(271, array_index=0, Submit_arguments=None)
        pbs.tells({"7[].head": array, "7[0].head": begun, "7[1].head": array}, made.run)
        now = status(made.run)
        assert (now.ending, now.counts) == ("cancelled", {"cancelled": 2})
        assert [one.attempts[0].reason for one in now.members] == [None, None]

    def test_a_held_array(self, pbs: FakePbs, tmp_path: Path) -> None:
        """PBS tells of the hold with the array, and not with its members."""
        made = OnPbs(tmp_path, members=2)
        array = {"job_state": "H", "Hold_Types": "u", "array": "True", "array_indices_submitted": "0-1"}
        pbs.tells({"7[].head": array, **{f"7[{index}].head": QUEUED for index in (0, 1)}}, made.run)
        now = status(made.run)
        assert now.state == "pending"
        assert now.reason == "it is held (Hold_Types u); `qrls -h u 7[].head` releases it"

    def test_another_servers_job(self, pbs: FakePbs, made: OnPbs) -> None:
        pbs.tells({"7.head": {**RUNNING, "Submit_arguments": "other.sh"}})
        assert status(made.run).state == "unknown"


class TestGoingOn:
    def test_its_copy_waits(self, pbs: FakePbs, made: OnPbs) -> None:
        made.goes_on()
        pbs.tells({"7.head": finished(0), "8.head": QUEUED}, made.run)
        now = status(made.run)
        assert (now.state, [one.ending for one in now.members[0].attempts]) == ("pending", ["resume"])
        assert pbs.questions() == ["qstat -x -t -f -w 7.head 8.head"]

    def test_it_is_about_to_be_submitted(self, pbs: FakePbs, made: OnPbs) -> None:
        made.attempt("0.0", "resume")
        pbs.tells({"7.head": {"job_state": "E"}}, made.run)
        assert status(made.run).state == "pending"

    def test_its_copy_runs(self, pbs: FakePbs, made: OnPbs) -> None:
        made.goes_on()
        made.attempt("0.1", job="8.head")
        pbs.tells({"8.head": RUNNING}, made.run)
        now = status(made.run)
        assert (now.state, [one.ending for one in now.members[0].attempts]) == ("running", ["resume", None])

    def test_its_copy_has_just_made_its_folder(self, pbs: FakePbs, made: OnPbs) -> None:
        """And has not said in it whose it is; the job before it has ended well."""
        made.goes_on()
        (made.run.path / "attempts/0.1").mkdir()
        pbs.tells({"7.head": finished(0), "8.head": RUNNING}, made.run)
        assert status(made.run).state == "running"

    def test_its_copy_was_deleted(self, pbs: FakePbs, made: OnPbs) -> None:
        made.goes_on()
        pbs.tells({"8.head": finished(None)}, made.run)
        now = status(made.run)
        assert (*ending(now), len(now.members[0].attempts)) == ("ended", "cancelled", 143, 2)
        pbs.tells({})
        assert ending(status(made.run)) == ("ended", "cancelled", 143)

    def test_its_copy_is_in_an_unknown_state(self, pbs: FakePbs, made: OnPbs) -> None:
        made.goes_on()
        pbs.tells({"7.head": finished(0), "8.head": {"job_state": "M"}}, made.run)
        now = status(made.run)
        assert (now.state, now.over, [one.ending for one in now.members[0].attempts]) == (
            "unknown",
            False,
            ["resume"],
        )
        assert now.reason == "PBS reports job 8.head as M: it was moved to another server; it may be running"

    def test_written_down_since_qstat_was_asked(self, pbs: FakePbs, made: OnPbs) -> None:
        """Then it is asked about, and the run is not taken for over."""
        record = made.run.path / "attempts/0.0/next.json"
        made.attempt("0.0", "resume")
        first = f"""[ ! -e {record} ] && echo '{{"job": "8.head"}}' >{record} && {{ {UNKNOWN}; }}"""
        pbs.program("qstat", f"{first}; cat {pbs.answer}")
        pbs.tells({"8.head": QUEUED}, made.run)
        assert status(made.run).state == "pending"

    def test_and_over_when_it_was_asked_about(self, pbs: FakePbs, made: OnPbs) -> None:
        """Its copy has begun and ended before qstat tells of it: then there is more in the records."""
        made.attempt("0.0", "resume")
        following = made.run.path / "attempts/0.0/next.json"
        last = made.attempt("0.1", "done", job="8.head")
        last.rename(tmp := made.run.path / "later")
        first = f"""[ ! -e {following} ] && echo '{{"job": "8.head"}}' >{following} && {{ {UNKNOWN}; }}"""
        pbs.program("qstat", f"{first}; [ ! -e {tmp} ] || mv {tmp} {last}; cat {pbs.answer}")
        pbs.tells({"8.head": finished(0)}, made.run)
        assert ending(status(made.run)) == ("ended", "done", 0)


class TestChain:
    @pytest.fixture
    def made(self, tmp_path: Path) -> OnPbs:
        return OnPbs(tmp_path, chain=3)

    def test_the_first_one_waits(self, pbs: FakePbs, made: OnPbs) -> None:
        held = {"job_state": "H", "Hold_Types": "s", "depend": "afternotok:7.head@head"}
        pbs.tells({"7.head": QUEUED, "8.head": held, "9.head": held}, made.run)
        assert status(made.run).reason == "PBS has not looked at it yet"

    @pytest.mark.parametrize("own", [("resume", 75), ("walltime", 143), None])
    def test_the_next_one_follows(self, pbs: FakePbs, made: OnPbs, own: tuple[str, int] | None) -> None:
        made.attempt("0.0", *(own or ()))
        pbs.tells({"7.head": finished(-29 if own is None else 75), "8.head": QUEUED}, made.run)
        assert status(made.run).state == "pending"
        made.attempt("0.1", "done", job="8.head")
        pbs.tells({}, made.run)
        assert ending(status(made.run)) == ("ended", "done", 0)

    def test_the_next_one_waits_until_it_is_gone(self, pbs: FakePbs, made: OnPbs) -> None:
        made.attempt("0.0", "resume", 75)
        held = {"job_state": "H", "Hold_Types": "s", "depend": "afternotok:7.head@head"}
        pbs.tells({"7.head": {"job_state": "E"}, "8.head": held}, made.run)
        now = status(made.run)
        assert (now.state, now.reason) == ("pending", "its next attempt is about to begin")

    @pytest.mark.parametrize("own", [("failed", 3), ("done", 0)])
    def test_nothing_follows(self, pbs: FakePbs, made: OnPbs, own: tuple[str, int]) -> None:
        made.attempt("0.0", *own)
        assert ending(status(made.run)) == ("ended", *own) and pbs.questions() == []

    def test_the_next_one_did_not_begin(self, pbs: FakePbs, made: OnPbs) -> None:
        """As when the run was asked to stop; those after it are deleted."""
        made.attempt("0.0", "resume", 75)
        gone = finished(None, depend="afternotok:8.head@head")
        pbs.tells({"7.head": finished(75), "8.head": finished(0), "9.head": gone}, made.run)
        assert ending(status(made.run)) == ("ended", "resume", 75)

    def test_the_next_one_was_deleted_with_those_after_it(self, pbs: FakePbs, made: OnPbs) -> None:
        """As PBS does when the job before it ends well: nobody has cancelled the run."""
        made.attempt("0.0", "resume", 75)
        gone = finished(None, depend="afternotok:7.head@head")
        pbs.tells({"7.head": finished(0), "8.head": gone, "9.head": gone}, made.run)
        assert ending(status(made.run)) == ("ended", "resume", 75)

    def test_the_last_one(self, pbs: FakePbs, made: OnPbs) -> None:
        for link in range(3):
            made.attempt(f"0.{link}", "resume" if link < 2 else "walltime", 75, job=f"{7 + link}.head")
        assert ending(status(made.run)) == ("ended", "walltime", 75)


class TestRestarts:
    """Attempts that the same job followed with another."""

    def restarted(self, made: OnPbs, name: str = "0.0") -> None:
        made.attempt(name, "failed", 137)
        record = {"ending": "failed", "code": 137, "time": 1010, "restart": True}
        made.write(f"attempts/{name}/ending.json", record)

    def test_what_was_restarted_has_failed_and_was_not_preempted(self, pbs: FakePbs, made: OnPbs) -> None:
        self.restarted(made)
        made.attempt("0.1")
        pbs.tells({"7.head": RUNNING}, made.run)
        now = status(made.run)
        assert [one.ending for one in now.members[0].attempts] == ["failed", None]
        assert now.state == "running"

    def test_between_two_attempts_it_is_running(self, pbs: FakePbs, made: OnPbs) -> None:
        self.restarted(made)
        pbs.tells({"7.head": RUNNING}, made.run)
        assert status(made.run).state == "running"

    def test_a_job_that_is_killed_in_between(self, pbs: FakePbs, made: OnPbs) -> None:
        self.restarted(made)
        pbs.tells({"7.head": finished(271)}, made.run)
        assert status(made.run).ending == "cancelled"
