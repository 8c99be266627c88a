"""Runs on LSF: what is asked, sent and ended, with answers after the manuals and of OpenLava 2.2."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, ClassVar

import pytest

from castoff import JobSpec, Site, submit
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Queue
from castoff.launcher.schedulers.command import SchedulerUnreachable
from castoff.launcher.schedulers.lsf.allocation import find
from castoff.launcher.schedulers.lsf.hosts import parse
from castoff.launcher.schedulers.lsf.scheduler import SCHEDULER
from castoff.launcher.schedulers.machine_info import NodeKind, QueueInfo
from castoff.launcher.submission.resubmit import resubmit
from castoff.launcher.submission.send import NotSent

ANSWERS = Path(__file__).parents[2] / "answers" / "lsf"

_PROGRAM = """\
#!/bin/sh
PATH=/usr/bin:/bin
for word; do printf '[%s]' "$word"; done >>{folder}/{name}.asked; echo >>{folder}/{name}.asked
{says}
"""


class FakeLsf:
    """bsub, bjobs, bkill and lsid."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        self.says("bsub", "echo 'Job <7> is submitted to queue <gpu>.'")
        self.says("bjobs", "echo 'No unfinished job found' >&2; exit 255")
        self.says("bkill", "true")
        self.says("lsid", f"cat {ANSWERS}/lsid.txt")

    def says(self, name: str, says: str) -> None:
        path = self.folder / name
        path.write_text(_PROGRAM.format(folder=self.folder, name=name, says=says))
        path.chmod(0o755)

    def asked(self, name: str) -> list[str]:
        path = self.folder / f"{name}.asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def lsf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeLsf:
    fake = FakeLsf(tmp_path / "lsf")
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


@pytest.fixture
def queue(lsf: FakeLsf) -> Queue:
    return SCHEDULER.queue()


def submitted(folder: Path, **fields: Any) -> RunDirectory:
    job = JobSpec.of({"command": ["true"], "walltime": "90s", **fields})
    return submit(job, Site.load("lsf"), runs_dir=folder / "runs")


class TestSubmission:
    def test_the_command(self, lsf: FakeLsf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its directives, and its script as the command, whose path bjobs then shows."""
        monkeypatch.setenv("KEY", "secret")
        run = submitted(tmp_path, env_from=["KEY"], inherit=["LANG"])
        assert run.job == "7"
        (command,) = lsf.asked("bsub")
        assert command == (
            "[-J][true][-n][1][-R][span[ptile=1]][-W][2][-rn][-env][LANG,CASTOFF_RUN_DIR]"
            f"[-o][{run.path}/logs/lsf-%I.log][/bin/bash][-l][{run.script}]"
        )

    def test_all_of_the_environment(self, lsf: FakeLsf, tmp_path: Path) -> None:
        submitted(tmp_path, inherit="all")
        assert "[-env][all]" in lsf.asked("bsub")[0]

    def test_an_array_counts_from_1(self, lsf: FakeLsf, tmp_path: Path) -> None:
        run = submitted(tmp_path, array={"count": 4, "max_concurrent": 2})
        assert "[-J][true[1-4]%2]" in lsf.asked("bsub")[0]
        record = run.submission()
        assert record is not None and record.sends[0].starts() == {0: 1, 1: 2, 2: 3, 3: 4}

    def test_what_is_refused_was_never_sent(self, lsf: FakeLsf, tmp_path: Path) -> None:
        lsf.says("bsub", "echo 'nosuch: No such queue. Job not submitted.' >&2; exit 255")
        with pytest.raises(NotSent, match="No such queue"):
            submitted(tmp_path)

    def test_a_daemon_that_did_not_answer_may_have_taken_it(self, lsf: FakeLsf, tmp_path: Path) -> None:
        keep = f'for last; do :; done; echo "$last" >{lsf.folder}/script; '
        lsf.says("bsub", keep + "echo 'batch daemon not responding ... timed out' >&2; exit 255")
        lsf.says("bjobs", f'echo "9|0|PEND|-|-|-|/x|/bin/bash -l $(cat {lsf.folder}/script)"')
        assert submitted(tmp_path).job == "9"

    def test_a_path_that_bsub_would_change(self, lsf: FakeLsf, tmp_path: Path) -> None:
        with pytest.raises(CastoffError, match="bsub hands its command to a shell"):
            submitted(tmp_path / "a b")

    def test_some_members_again_on_other_hosts(self, lsf: FakeLsf, tmp_path: Path) -> None:
        run = submitted(tmp_path, array={"count": 3})
        for member, ending in enumerate(("done", "failed", "failed")):
            attempt = run.path / "attempts" / f"{member}.0"
            attempt.mkdir(parents=True)
            (attempt / "start.json").write_text('{"job": "7", "host": "n1", "time": 1}')
            (attempt / "ending.json").write_text(f'{{"ending": "{ending}", "code": 1, "time": 2}}')
        lsf.says(
            "bjobs",
            "for last; do :; done; [ $last = 7 ] && echo 'Job <7> is not found' >&2 ||"
            " echo 'No unfinished job found' >&2; exit 255",
        )
        resubmit(run)
        assert "[-J][true[2-3]]" in lsf.asked("bsub")[-1]


class TestQueue:
    def test_what_it_asks(self, lsf: FakeLsf, queue: Queue) -> None:
        lsf.says("bjobs", f"cat {ANSWERS}/jobs.txt; cat {ANSWERS}/unknown.err >&2; exit 255")
        answer = queue.ask(["101", "113", "999"])
        assert (
            {job for job, _ in answer.jobs} == {"101", "113"} and not answer.silence and not answer.unanswered
        )
        assert lsf.asked("bjobs")[0].endswith(" sub_cwd command delimiter='|'][101][113][999]")

    def test_an_answer_that_leaves_a_job_out(self, lsf: FakeLsf, queue: Queue) -> None:
        lsf.says("bjobs", f"cat {ANSWERS}/jobs.txt")
        assert queue.ask(["101", "200"]).unanswered == {"200": "bjobs's answer leaves out job 200"}

    def test_a_daemon_that_is_down(self, lsf: FakeLsf, queue: Queue) -> None:
        lsf.says("bjobs", "echo 'LSF is down. Please wait ...' >&2; exit 255")
        assert "LSF is down" in str(queue.ask(["101"]).silence)
        assert queue.find("/runs/done/job.sh", "x", 0.0) is None
        with pytest.raises(SchedulerUnreachable):
            queue.unfinished("/runs/done/job.sh")

    def test_none_is_an_answer(self, queue: Queue) -> None:
        assert queue.find("/runs/done/job.sh", "x", 0.0) == []

    def test_whose_script_it_is(self, lsf: FakeLsf, queue: Queue) -> None:
        lsf.says("bjobs", f"cat {ANSWERS}/jobs.txt")
        assert [job.job for job in queue.unfinished("/runs/running/job.sh")] == ["107"]
        assert [job.job for job in queue.find("/runs/late/job.sh", "x", 0.0) or []] == ["103"]

    def test_cancelling(self, lsf: FakeLsf, queue: Queue) -> None:
        lsf.says("bkill", "echo 'Job <8[3]>: Job has already finished' >&2; exit 255")
        assert queue.cancel(["7", "8_3"]) == {
            "8_3": "bkill failed with exit code 255: Job <8[3]>: Job has already finished"
        }
        assert lsf.asked("bkill") == ["[7][8[3]]"]
        lsf.says(
            "bkill", "echo 'Job <7>: Operation is in progress' >&2; exit 255"
        )  # of an array, OpenLava 2.2
        assert queue.cancel(["7"]) == {}

    def test_which_cluster(self, queue: Queue) -> None:
        assert queue.configuration().cluster == "openlava"


class TestMachine:
    def test_queues_and_hosts(self) -> None:
        names = {"cluster": "lsid", "queues": "queues", "nodes": "nodes"}
        info = parse({about: (ANSWERS / f"{name}.txt").read_text() for about, name in names.items()})
        assert (info.queues, info.name) == ({"normal": QueueInfo()}, "openlava")
        assert info.nodes == [NodeKind(2, memory=24105)]

    def test_a_host_that_is_away_and_a_queue_that_is_shut(self) -> None:
        hosts = "HOST_NAME type model …\na - - - - - - Yes ()\nb x y 1 8 1.5G - No ()\n"
        info = parse({"cluster": "", "queues": "Q P S\nnight 3 Closed:Inact -\n", "nodes": hosts})
        assert info.nodes == [] and info.queues == {"night": QueueInfo(accepts_jobs=False, starts_jobs=False)}


class TestAllocation:
    ENVIRONMENT: ClassVar[dict[str, str]] = {
        "LSB_JOBID": "7",
        "LSB_MCPU_HOSTS": "n1 4 n2 4 n3 2 ",
    }  # as OpenLava 2.2 writes it

    def test_its_hosts(self, tmp_path: Path) -> None:
        found = find(self.ENVIRONMENT)
        assert found is not None and found.hosts == ["n1", "n2", "n3"]
        narrowed = found.narrowed(2, self.ENVIRONMENT, tmp_path, "/from")
        assert (narrowed["LSB_MCPU_HOSTS"], narrowed["LS_SUBCWD"]) == ("n1 4 n2 4", "/from")
        assert shlex.split(found.larger(2, 4, 2, 1))[:6] == ["bsub", "-Is", "-n", "16", "-R", "span[ptile=8]"]

    def test_none(self) -> None:
        assert find({}) is None
        with pytest.raises(CastoffError, match="LSB_MCPU_HOSTS is not set"):
            find({"LSB_JOBID": "7"})
