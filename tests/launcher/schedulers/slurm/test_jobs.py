"""What Slurm prints about jobs, and what castoff makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.runs.states import ENDINGS
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.slurm.jobs import history_command, parse_history, parse_queue, queue_command
from tests.hostile import any_text

from ..pages import page

# As Slurm 22.05.8 printed it.
QUEUE = """\
1|N/A|COMPLETED|None|1795251484|1795251487|1795251487|/home/a/job.sh 0.1
2|N/A|COMPLETED|None|1795251484|1795251487|1795251487|/home/a|b c/job.sh 0.1
3|2|PENDING|JobArrayTaskLimit|1795251484|N/A|N/A|/home/a/job.sh
6|N/A|PENDING|BeginTime|1795251484|1795255084|NONE|/home/a/job.sh
3|0|COMPLETING|None|1795251484|1795251489|NONE|/home/a/job.sh
3|4-5,8%2|PENDING|Resources|1795251484|N/A|N/A|/home/a/job.sh
"""
HISTORY = """\
1|COMPLETED|0:0|1795251484|1795251487|1795251487|sbatch --parsable job.sh 0.1
1.batch|COMPLETED|0:0|1795251484|1795251487|1795251487|
3_0|REQUEUED|0:0|1795251484|1795251487|1795251488|sbatch --array=0-9%2 /r/a|b/job.sh
3_0.batch|FAILED|15:0|1795251484|1795251487|1795251489|
3_1|CANCELLED by 1000|0:0|1795251484|1795251487|1795251487|sbatch --array=0-9%2 /r/a|b/job.sh
3_[6,9%2]|PENDING|0:0|1795251484|Unknown|Unknown|sbatch --array=0-9%2 /r/a|b/job.sh
3_0|PENDING|0:0|1795251489|Unknown|Unknown|sbatch --array=0-9%2 /r/a|b/job.sh
4|FAILED|0:9|1795251484|1795251487|1795251490|sbatch /r/j/job.sh
4.batch|FAILED|0:9|1795251484|1795251487|1795251490|
4.0|OUT_OF_MEMORY|0:125|1795251484|1795251487|1795251490|
"""


class TestTheQueue:
    def test_each_job_and_member(self) -> None:
        info = parse_queue(page(QUEUE))
        places = [(one.job, one.task, one.word) for one in info]
        assert places == [
            ("1", None, "COMPLETED"),
            ("2", None, "COMPLETED"),
            ("3", 2, "PENDING"),
            ("6", None, "PENDING"),
            ("3", 0, "COMPLETING"),
            ("3", 4, "PENDING"),
            ("3", 5, "PENDING"),
            ("3", 8, "PENDING"),
        ]
        assert info[1].script == "/home/a|b c/job.sh 0.1"
        assert (info[0].submitted, info[0].start, info[0].end) == (1795251484, 1795251487, 1795251487)
        assert (info[3].start, info[3].end, info[2].start) == (1795255084, None, None)

    def test_the_question(self) -> None:
        """Also about hidden partitions, each member, and what ended a moment ago; the path last."""
        command = queue_command("1000")
        assert {"--all", "--array", "--states=all", "--user=1000", "--noheader"} < {*command}
        assert command[-1].endswith("|%o")

    @given(st.text(), st.integers(0, 400))
    def test_whatever_is_printed(self, text: str, cut: int) -> None:
        """Output that was cut off, or is none of Slurm's, tells of no job that was not there."""
        assert {*parse_queue(page(QUEUE[:cut]))} <= {*parse_queue(page(QUEUE))}
        for one in parse_queue(page(text)):
            assert one.job.isdecimal()

    @given(
        job=st.integers(1, 10**9),
        task=st.none() | st.integers(0, 4_000_000),
        reason=st.sampled_from(["None", "Priority", "QOSMaxCpuPerUserLimit", ""]),
        times=st.tuples(*3 * [st.none() | st.integers(0, 10**10)]),
        path=any_text(without="\n"),
    )
    def test_lines_are_read_as_they_were_meant(
        self, job: int, task: int | None, reason: str, times: tuple[int | None, ...], path: str
    ) -> None:
        shown = ["N/A" if time is None else str(time) for time in times]
        line = "|".join([str(job), "N/A" if task is None else str(task), "RUNNING", reason, *shown, path])
        (info,) = parse_queue(page(line + "\n"))
        assert (info.job, info.task, info.word, info.stage) == (str(job), task, "RUNNING", "running")
        assert (info.submitted, info.start, info.end, info.script) == (*times, path)

    def test_huge_ranges_are_bounded(self) -> None:
        assert parse_queue(page("3|0-99999999|PENDING|None|1|1|1|x\n")) == []
        found = parse_queue(page("3|0-8:4,11,...|PENDING|None|1|1|1|x\n"))
        assert [one.task for one in found] == [0, 4, 8, 11]


class TestHistory:
    def test_each_start(self) -> None:
        info = parse_history(page(HISTORY))
        assert [(one.job, one.task, one.word) for one in info] == [
            ("1", None, "COMPLETED"),
            ("3", 0, "REQUEUED"),
            ("3", 1, "CANCELLED"),
            ("3", 6, "PENDING"),
            ("3", 9, "PENDING"),
            ("3", 0, "PENDING"),
            ("4", None, "OUT_OF_MEMORY"),  # as its step tells
        ]
        assert info[2].cancelled_by == "1000" and info[1].script.endswith(" /r/a|b/job.sh")
        assert (info[6].ending, info[6].exit_code) == ("out-of-memory", 137)
        assert info[1].exit_code == 0

    @pytest.mark.parametrize(
        ("states", "word"),
        [
            (["OUT_OF_MEMORY|2|3", "COMPLETED|4|4", "FAILED|5|6"], "FAILED"),
            (["FAILED|2|3", "COMPLETED|4|4", "OUT_OF_MEMORY|5|6"], "OUT_OF_MEMORY"),
            (["OUT_OF_MEMORY|2|3", "CANCELLED by 0|4|5", "OUT_OF_MEMORY|6|7"], "OUT_OF_MEMORY"),
            # With preload the programs are in the first of these steps, and their stand-ins in the second.
            (["OUT_OF_MEMORY|2|4", "FAILED|3|4"], "OUT_OF_MEMORY"),
        ],
    )
    def test_of_several_attempts_the_last_step_that_failed_tells(self, states: list[str], word: str) -> None:
        lines = (state.replace("|", "|0:0|1|", 1) for state in states)
        steps = [f"4.{step}|{line}|\n" for step, line in enumerate(lines)]
        (info,) = parse_history(page(f"4|FAILED|9:0|1|2|3|sbatch /r/j/job.sh\n{''.join(steps)}"))
        assert info.word == word

    @given(st.text(), st.integers(0, 900))
    def test_whatever_is_printed(self, text: str, cut: int) -> None:
        whole = {(one.job, one.task, one.word) for one in parse_history(page(HISTORY))}
        whole.add(("4", None, "FAILED"))
        assert {(one.job, one.task, one.word) for one in parse_history(page(HISTORY[:cut]))} <= whole
        for one in parse_history(page(text)):
            assert one.job.isdecimal()

    def test_a_part_of_a_heterogeneous_job(self) -> None:
        (info,) = parse_history(page("7+1|FAILED|3:0|1|1|1|sbatch x\n"))
        assert (info.job, info.task, info.exit_code) == ("7", None, 3)

    def test_the_question(self) -> None:
        command = history_command(["4711", "4712"])
        assert "--jobs=4711,4712" in command and "--duplicates" in command
        command = history_command(user="1000", since=0)
        assert {"--user=1000", "--allocations"} < {*command} and command[-1].startswith("--starttime=19")


STATES = [
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "CONFIGURING", "COMPLETING", "DEADLINE", "EXPEDITING", "FAILED"),
    *("LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING", "POWER_UP_NODE", "PREEMPTED", "RUNNING"),
    *("RECONFIG_FAIL", "RESV_DEL_HOLD", "REQUEUE_FED", "REQUEUE_HOLD", "REQUEUED", "RESIZING", "REVOKED"),
    *("SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "TIMEOUT", "UPDATE_DB"),
]
"""squeue(1), job state codes, of 22.05 to 25.11."""


def queued(word: str, reason: str = "None", task: str = "N/A", start: str = "N/A") -> JobInfo:
    """Job 7, by what squeue prints."""
    (info,) = parse_queue(page(f"7|{task}|{word}|{reason}|1|{start}|N/A|/r/a/job.sh\n"))
    return info


class TestWords:
    @pytest.mark.parametrize("word", STATES)
    def test_of_every_state(self, word: str) -> None:
        info = queued(word)
        assert info.stage in ("pending", "running", "ended") or (word == "REVOKED" and info.is_active)
        assert info.ending in ENDINGS
        if info.stage == "ended":
            assert info.ending != "unknown"

    def test_of_one_that_slurm_never_started(self) -> None:
        info = queued("FAILED", "BadConstraints")
        assert (info.ending, info.ended_itself) == ("failed", False)
        assert info.why == "no node has what it asks for (BadConstraints)"
        assert queued("FAILED", "NonZeroExitCode").ended_itself

    def test_of_no_state_that_is_known(self) -> None:
        info = queued("SINGING")
        assert (info.stage, info.ending, info.is_active) == ("unknown", "unknown", True)

    @pytest.mark.parametrize(
        ("info", "words"),
        [
            (queued("PENDING", "Priority"), "others come first (Priority)"),
            (queued("PENDING", "None"), "Slurm has not looked at it yet"),
            (queued("PENDING", ""), "Slurm has not looked at it yet"),
            (
                queued("PENDING", "JobHeldUser", "3"),
                "it is held (JobHeldUser); `scontrol release 7_3` releases it",
            ),
            (queued("PENDING", "JobHeldAdmin"), "an administrator holds it (JobHeldAdmin)"),
            (
                queued("PENDING", "QOSMaxJobsPerUserLimit"),
                "a limit of your account or QOS is reached (QOSMaxJobsPerUserLimit)",
            ),
            (
                queued("PENDING", "AssocGrpNodeLimit"),
                "a limit of your account or QOS is reached (AssocGrpNodeLimit)",
            ),
            (
                queued("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-2]"),
                "nodes that it needs are down, drained or reserved "
                "(ReqNodeNotAvail, UnavailableNodes:n[1-2])",
            ),
            (
                queued("PENDING", "launch failed requeued held"),
                "its nodes could not start it, so it is held (launch failed requeued held); "
                "`scontrol release 7` releases it",
            ),
            (
                queued("PENDING", "NewThisYear"),
                "Slurm has another reason (NewThisYear)",
            ),
            (queued("CONFIGURING", "None"), "its nodes are being prepared (CONFIGURING)"),
            (
                queued("REQUEUE_HOLD", "JobHeldUser"),
                "it was requeued, and is held (REQUEUE_HOLD); `scontrol release 7` releases it",
            ),
        ],
    )
    def test_why_it_waits(self, info: JobInfo, words: str) -> None:
        assert info.pending_reason == words

    def test_when_it_may_begin(self) -> None:
        for reason in ("Resources", "Priority", "BeginTime"):
            assert queued("PENDING", reason, start="1795255084").start == 1795255084
        for reason in ("Dependency", "JobHeldUser", "PartitionTimeLimit"):
            assert queued("PENDING", reason, start="1795255084").start is None
        assert queued("RUNNING", "None", start="1795255084").start == 1795255084

    def test_what_waits_for_somebody(self) -> None:
        assert queued("PENDING", "DependencyNeverSatisfied").is_held
        assert queued("SPECIAL_EXIT", "None").is_held
        assert not queued("PENDING", "Resources").is_held


@pytest.mark.parametrize(
    ("script", "is_it"),
    [
        ("/runs/a-1/job.sh", True),
        ("sbatch --parsable --output=/x /runs/a-1/job.sh", True),
        ("/elsewhere/a-1/job.sh", True),  # it was moved
        ("/runs/ba-1/job.sh", False),
        ("/runs/a-1/job.sh x", False),
        ("/runs/a-12/job.sh", False),
        ("", False),
    ],
)
def test_whose_script_it_is(script: str, is_it: bool) -> None:
    assert JobInfo("1", None, "RUNNING", script=script).runs("/runs/a-1/job.sh") is is_it


REASONS = """
None Prolog Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown
PartitionInactive JobHeldAdmin JobHeldUser BeginTime Licenses AssociationJobLimit AssociationResourceLimit
AssociationTimeLimit Reservation ReqNodeNotAvail FrontEndDown SchedDefer NodeDown BadConstraints
SystemFailure JobLaunchFailure InvalidAccount InvalidQOS QOSUsageThreshold QOSJobLimit QOSResourceLimit
QOSTimeLimit Cleaning QOSNotAllowed AccountNotAllowed DependencyNeverSatisfied QOSGrpCpuLimit
QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied AssocGrpJobsLimit AssocMaxSubmitJobLimit
JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources BurstBufferStageIn BurstBufferOperation
PowerNotAvail PowerReserved AssocGrpUnknown QOSMinGRES DeadLine MaxBBPerAccount MaxCpuPerAccount
MaxEnergyPerAccount MaxGRESPerAccount MaxNodePerAccount MaxLicensePerAccount MaxMemoryPerAccount
MaxUnknownPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount MaxBillingPerAccount PartitionConfig
AccountingPolicy FedJobLock MaxMemPerLimit QOSMinBilling ReservationDeleted ReservationInvalid Constraints
"""
"""Reasons for which a job may wait, by Slurm's own table (src/common/job_state_reason.c, read on 2026-11-25);
of the limits of associations and QOS, of which there are a hundred, some."""

DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"

SENTENCES = {
    DOWN: "nodes that it needs are down, drained or reserved",
    DOWN.replace(" ", "_"): "nodes that it needs are down, drained or reserved",
    "ReqNodeNotAvail, May be reserved for other job": "nodes that it needs are down, drained or reserved",
    "ReqNodeNotAvail, Reserved for maintenance": "nodes that it needs are down, drained or reserved",
    "ReqNodeNotAvail,_UnavailableNodes:n[1-2]": "nodes that it needs are down, drained or reserved",
    "Burst buffer pre_run error": "its burst buffer could not be made",
    "launch_failed_requeued_held": "its nodes could not start it, so it is held",
}
"""What it says in more words."""


def test_every_reason_has_words() -> None:
    for reason in REASONS.split():
        words = queued("PENDING", reason).pending_reason
        assert words and "a reason of its own" not in words, reason


@pytest.mark.parametrize(("reason", "words"), SENTENCES.items())
def test_a_reason_in_a_sentence(reason: str, words: str) -> None:
    info = queued("PENDING", reason)
    assert info.pending_reason.startswith(words) and f"({reason})" in info.pending_reason
    assert info.is_held == ("burst" in words or "held" in words)
