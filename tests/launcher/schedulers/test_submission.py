"""What castoff says to each scheduler, and how it reads the answer."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff import JobSpec, Site, plan
from castoff.launcher.config.array_indices import index_list
from castoff.launcher.errors import CastoffError
from castoff.launcher.planning.render import render
from castoff.launcher.runs.script import head_of
from castoff.launcher.schedulers.command import command_environment
from castoff.launcher.schedulers.local import control as local
from castoff.launcher.schedulers.registry import queued_of
from castoff.launcher.schedulers.slurm import scheduler as slurm
from castoff.launcher.schedulers.slurm.queue import SlurmQueue
from castoff.launcher.schedulers.submit_request import Part, SubmitCommand, SubmitRequest
from castoff.launcher.submission.send import send_of


def ordered(site: str, run_dir: str, dependency: str | None = None, **fields: Any) -> SubmitRequest:
    decided = plan(JobSpec.of({"name": "j", "command": ["true"], **fields}), Site.load(site))
    return SubmitRequest.of(decided, head_of(render(decided)), run_dir, dependency)


def first(site: str, run_dir: str, dependency: str | None = None, **fields: Any) -> SubmitCommand:
    """The one command that submits a job."""
    (found,) = queued_of(site).submit_commands(ordered(site, run_dir, dependency, **fields), None)
    return found


def test_sbatch() -> None:
    found = first("slurm", "/runs/j-1")
    assert found.environment == {"CASTOFF_RUN_DIR": "/runs/j-1"}
    assert found.argv(None) == [
        *("sbatch", "--parsable", "--output=/runs/j-1/logs/job-0.log", "--export=CASTOFF_RUN_DIR"),
        "/runs/j-1/job.sh",
    ]


def test_sbatch_of_an_array_that_waits() -> None:
    found = first("slurm", "/runs/50%/j", "afterok:12", array={"count": 3}, inherit=["LANG", "TERM"])
    assert found.part == Part([0, 1, 2])
    assert found.argv(None)[2:] == [
        "--output=/runs/50%%/j/logs/job-%a.log",
        "--export=LANG,TERM,CASTOFF_RUN_DIR",
        "--dependency=afterok:12",
        "/runs/50%/j/job.sh",
    ]
    assert "--export=ALL" in first("slurm", "/r", inherit="all").argv(None)


def test_qsub() -> None:
    assert first("pbs", "/runs/j-1").argv(None) == [
        *("qsub", "-f", "-o", "/runs/j-1/logs/job-0.log", "-v", "CASTOFF_RUN_DIR", "/runs/j-1/job.sh")
    ]


def test_qsub_of_an_array_that_waits() -> None:
    found = first("pbs", "/r", "afterok:3.head", array={"count": 3}, inherit=["LANG"])
    assert found.argv(None)[2:] == [
        *("-o", "/r/logs/job-^array_index^.log", "-v", "LANG,CASTOFF_RUN_DIR"),
        *("-W", "depend=afterok:3.head", "/r/job.sh"),
    ]


def test_sbatch_of_an_array_with_gaps() -> None:
    array = {"indices": "1,3-5,10-20:2", "max_concurrent": 4}
    found = first("slurm", "/r", array=array)
    assert found.part == Part([1, 3, 4, 5, 10, 12, 14, 16, 18, 20])
    assert not any(word.startswith("--array") for word in found.argv(None)), "as the script says"
    parts = queued_of("slurm").submit_commands(ordered("slurm", "/r", array=array), 10)
    assert [one.part and one.part.indices for one in parts] == ["1,3-5", "0-8:2", "0"]
    assert [one.environment.get("CASTOFF_ARRAY_OFFSET") for one in parts] == [None, "10", "20"]
    assert "--array=0-8:2%4" in parts[1].argv("7")


@pytest.mark.parametrize("indices", ["7", "2-9", "10-20:5", "3,11"])
def test_qsub_of_an_array_that_one_range_has(indices: str) -> None:
    found = first("pbs", "/r", array={"indices": indices})
    assert "-J" not in found.argv(None) and found.part is not None and found.part.tasks is None
    assert "/r/logs/job-^array_index^.log" in found.argv(None)


def test_qsub_of_an_array_with_gaps() -> None:
    """It takes one range: so PBS counts the members from 0."""
    members = [1, 3, 4, 5, 10, 12]
    found = first("pbs", "/r", array={"indices": "1,3-5,10,12", "max_concurrent": 2})
    assert found.part == Part(members, tasks=[*range(6)])
    assert "-J" not in found.argv(None)
    assert "/r/logs/pbs-^array_index^.log" in found.argv(None)
    sent = send_of(found)
    assert sent.starts() == dict(zip(members, range(6), strict=True))


def test_members_of_an_array_with_gaps_are_sent_again() -> None:
    decided = plan(
        JobSpec.of({"command": ["x"], "array": {"indices": "1,3-5,10,12", "max_concurrent": 2}}),
        Site.load("pbs"),
    )
    begin = {3: 1, 4: 1, 10: 2, 12: 1}
    request = SubmitRequest.of(decided, head_of(render(decided)), "/r", "", begin)
    found = queued_of("pbs").submit_commands(request, None)
    ranges = [one.argv(None)[one.argv(None).index("-J") + 1] for one in found]
    assert ranges == ["1-2%2", "4-5:2", "5-6:2"]
    assert [send_of(one).starts() for one in found] == [{3: 1, 4: 2}, {10: 4}, {12: 5}]


@given(st.dictionaries(st.integers(0, 40), st.integers(0, 2), min_size=1), st.sets(st.integers(0, 40)))
def test_each_member_is_sent_once(begin: dict[int, int], others: set[int]) -> None:
    members = sorted({*begin, *others})
    array = {"indices": index_list(members)}
    decided = plan(JobSpec.of({"command": ["x"], "array": array}), Site.load("pbs"))
    request = SubmitRequest.of(decided, head_of(render(decided)), "/r", "", begin)
    sent = [send_of(one) for one in queued_of("pbs").submit_commands(request, None)]
    starts = [start for one in sent for start in one.starts().items()]
    tasks = dict(zip(members, queued_of("pbs").tasks(members), strict=True))
    if members == [0]:
        assert starts == [(0, None)]
    else:
        assert sorted(starts) == [(member, tasks[member]) for member in sorted(begin)]


def test_the_local_scheduler() -> None:
    command = local.submit_command("/runs/j-1")
    assert command[0] == sys.executable
    assert command[-4:] == ["-m", "castoff.program", "castoff.launcher.cli.local_scheduler", "/runs/j-1"]


@pytest.mark.parametrize(
    ("site", "folder"), [("slurm", "/a\\b"), ("pbs", "/a\\b"), ("pbs", "/é"), ("pbs", "/a\nb")]
)
def test_a_run_directory_that_no_directive_can_hold_is_refused(site: str, folder: str) -> None:
    queued_of(site).check_run_dir("/a b:'$x")
    with pytest.raises(CastoffError, match="--runs-dir") as caught:
        queued_of(site).check_run_dir(folder)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        ("4711\n", "4711"),
        ("4711;cluster\n", "4711"),
        ("4711", "4711"),
        ("", None),
        ("Submitted batch job 4711\n", "4711"),
        ("Submitted batch job 4711 on cluster big\n", "4711"),
        ("42 node hours are left\n4711\nGood luck!\n", "4711"),
        ("42\n4711\n", None),  # which of them, the queue knows
        ("42 \n4711;big\n", None),
        ("4711 jobs\n", None),
        ("sbatch: error: Socket timed out\n", None),
        ("\n4711\n", "4711"),
        ("-1\n", None),
    ],
)
def test_sbatchs_answer(answer: str, job: str | None) -> None:
    assert slurm.SCHEDULER.parse_submit(answer) == job


@pytest.mark.parametrize(
    ("answer", "job"),
    [
        ("3.head\n", "3.head"),
        ("7[].head\n", "7[].head"),
        ("1991684.aurora-pbs-0001.hostmgmt\n", "1991684.aurora-pbs-0001.hostmgmt"),
        ("", None),
        ("qsub: Unknown queue\n", None),
        ("42\n126.head\n", "126.head"),
        ("8.head\nwelcome\n", "8.head"),
        ("42\n", None),
        ("1.head\n2.head\n", None),
        ("3 jobs are too many\n", None),
    ],
)
def test_qsubs_answer(answer: str, job: str | None) -> None:
    assert queued_of("pbs").parse_submit(answer) == job


@pytest.mark.parametrize(
    ("answer", "job"), [("local-12\n", "local-12"), ("", None), ("Traceback\n", None), ("12\n", None)]
)
def test_the_local_schedulers_answer(answer: str, job: str | None) -> None:
    assert local.parse_submit(answer) == job


SBATCH = "#!/bin/bash\n#SBATCH --array=0-7%2\n#SBATCH --export=LANG,TOKEN\n"
QSUB = "#!/bin/bash\n#PBS -J 0-7%2\n#PBS -v LANG\ncastoff_requeue_max=1\n"


def again(script: str, begin: dict[int, int], **fields: Any) -> SubmitCommand:
    """The one sbatch that starts members again."""
    request = SubmitRequest(script, "/r", begin, resubmits=True, needed=["TOKEN"], **fields)
    (found,) = queued_of("slurm").submit_commands(request, None)
    return found


def test_sbatch_again() -> None:
    """Its secrets are read from its directory."""
    one = again(SBATCH, {4: 1, 5: 1}, dependency="afterok:7")
    assert one.environment == {"CASTOFF_RUN_DIR": "/r", "CASTOFF_ATTEMPT": "1"}
    assert one.argv(None) == [
        *("sbatch", "--parsable", "--output=/r/logs/job-%a.log"),
        *("--export=LANG,CASTOFF_RUN_DIR,CASTOFF_ATTEMPT", "--array=4-5%2", "--dependency=afterok:7"),
        "/r/job.sh",
    ]
    alone = again("#!/bin/bash\n#SBATCH --export=NIL\n", {0: 3})
    assert alone.argv(None)[3:] == ["--export=CASTOFF_RUN_DIR,CASTOFF_ATTEMPT", "/r/job.sh"]
    all_of_it = again(
        "#!/bin/bash\n#SBATCH --export=ALL\n#SBATCH --dependency=afterok:7\n", {0: 3}, dependency=""
    )
    assert all_of_it.argv(None)[3:5] == ["--export=ALL", "--dependency="]


def test_an_array_in_parts() -> None:
    """Slurm bounds the index, so each part counts from 0."""
    assert slurm.parts(range(20), 8) == [
        Part([*range(8)]),
        Part([*range(8, 16)], 8),
        Part([*range(16, 20)], 16),
    ]
    assert [part.indices for part in slurm.parts([17, 3, 9, 8], 8)] == ["3", "0-1", "1"]
    job = ordered("slurm", "/r", array={"count": 20, "max_concurrent": 3})
    *_, last = queued_of("slurm").submit_commands(job, 8)
    assert last.environment == {"CASTOFF_RUN_DIR": "/r", "CASTOFF_ARRAY_OFFSET": "16"}
    assert last.argv("7")[2:] == [
        "--output=/r/logs/slurm-%A_%a.log",
        "--export=CASTOFF_RUN_DIR,CASTOFF_ARRAY_OFFSET",
        *("--array=0-3%3", "--dependency=afterany:7", "/r/job.sh"),
    ]


@given(st.sets(st.integers(0, 5000), min_size=1), st.integers(1, 1000))
def test_every_member_is_in_one_part(members: set[int], largest: int) -> None:
    found = slurm.parts(members, largest)
    assert [member for part in found for member in part.members] == sorted(members)
    assert all(0 <= member - part.offset < largest for part in found for member in part.members)


def test_a_clusters_configuration_is_read() -> None:
    config = (
        "ClusterName             = castoff\nMaxArraySize            = 1001\n"
        "SchedulerParameters     = bf_window=1,max_array_tasks=500\n"
    )
    assert SlurmQueue.read_configuration(config) == ("castoff", 500)
    assert SlurmQueue.read_configuration("MaxArraySize = 8\n") == (None, 8)
    assert SlurmQueue.read_configuration("slurm_load_ctl_conf error") == (None, None)


@pytest.mark.parametrize(
    ("code", "words", "refused"),
    [
        (1, "sbatch: error: Batch job submission failed: Invalid account or account/partition", True),
        (1, "Batch job submission failed: Unable to contact slurm controller (connect failure)", True),
        (255, "sbatch: unrecognized option '--nope'", True),
        (137, "", False),
        (1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False),
        (1, "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", False),
        (-15, "", False),
    ],
)  # fmt: skip
def test_a_refusal_is_certain(code: int, words: str, refused: bool) -> None:
    assert slurm.SCHEDULER.was_refused(code, words) is refused


def test_qsub_again() -> None:
    begin = {0: 1, 1: 1, 2: 2, 3: 2, 5: 2, 7: 1}
    found = queued_of("pbs").submit_commands(
        SubmitRequest(QSUB, "/r", begin, resubmits=True, needed=["TOKEN"]), None
    )
    commands = [one.argv(None) for one in found]
    names = "LANG,CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT"
    assert all(command[4:6] == ["-v", names] for command in commands)
    assert [command[7] for command in commands] == ["0-1%2", "2-3%2", "5-6:2", "7-8:2"]
    assert [one.environment["CASTOFF_FIRST_ATTEMPT"] for one in found] == ["1", "2", "2", "1"]
    request = SubmitRequest("#!/bin/bash\n", "/r", {0: 1}, "afterok:3.h", resubmits=True)
    (one,) = queued_of("pbs").submit_commands(request, None)
    log = ["-o", "/r/logs/job-0.log"]
    passed = ["-v", "CASTOFF_RUN_DIR,CASTOFF_ATTEMPT"]
    assert one.argv(None) == ["qsub", "-f", *log, *passed, "-W", "depend=afterok:3.h", "/r/job.sh"]


def test_a_chain_again() -> None:
    """Each link waits for the one before it, and the first for what the run waits for."""
    request = SubmitRequest("#!/bin/bash\n", "/r", {0: 4}, "afterok:3.h", chain=3, resubmits=True)
    found = queued_of("pbs").submit_commands(request, None)
    waits = [one.argv(before)[-2] for one, before in zip(found, (None, "8.h", "9.h"), strict=True)]
    assert waits == ["depend=afterok:3.h", "depend=afternotok:8.h", "depend=afternotok:9.h"]
    assert [one.environment["CASTOFF_CHAIN"] for one in found] == ["0", "1", "2"]
    assert {one.environment["CASTOFF_ATTEMPT"] for one in found} == {"4"}


def test_what_a_local_run_submits_is_not_known_by_its_mark() -> None:
    """Or it would be ended with that, were it on the same host."""
    assert command_environment({"HERE": "1", local.MARK: "a1", local.INDEX: "0"}) == {"HERE": "1"}
