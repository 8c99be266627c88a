"""Jobs that stop early, or are stopped, go on from where they were; others do not.

All are submitted at once, on nodes of their own, because most of them have to wait for Slurm.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from launcher.runs import Run
from tests.patience import until

from .desk import Desk
from .slurm import SlurmCluster

CHECKOUT = Path(__file__).resolve().parents[2]
PAUSE = "2"  # of 48 steps: none is done before it is interrupted

WRITES_AGAIN = "echo again >$CASTOFF_OUTCOME_FILE"


def node(name: str) -> tuple[str, str]:
    return ("--set", f"directives.nodelist={name}")


class Trainings:
    """The trainings that are interrupted, each in its own way, and one that is not."""

    def __init__(self, desk: Desk):
        self.desk = desk
        self.whole = self._submit("whole", *node("n1"), pause="0")
        two = ("--nodes", "2", "--ranks-per-node", "2", "--set", 'directives.nodelist="n1,n2"')
        self.late = self._submit("late", *two, "--set", "grace=10m")
        self.stopped = self._submit("stopped", *node("n2"))
        self.preempted = self._submit("preempted", *node("n3"))
        self.lost = self._submit("lost", *node("n4"))

    def _submit(self, name: str, *words: str, pause: str = PAUSE) -> Run:
        if "--nodes" not in words:
            words = (*words, "--ranks-per-node", "4")
        return self.desk.submit(
            *("--name", name, "--walltime", "1h", "--set", "requeue.max=2"),
            *("--set", f"env.PYTHONPATH={CHECKOUT}", *words),
            command=[sys.executable, "-m", "tests.cluster.toy_training", pause],
        )

    def until_step(self, run: Run, wanted: int) -> None:
        """Wait until a training has made so many steps."""

        def reached() -> bool:
            text = "".join(path.read_text() for path in run.path.glob("trained/*/metrics.jsonl"))
            steps = [json.loads(line)["step"] for line in text.splitlines() if line.endswith("}")]
            return max(steps, default=0) >= wanted

        until(reached, f"step {wanted} of {run.id}")

    def run_out_of_time(self, run: Run) -> None:
        """Let Slurm find a training so near to its time limit that it asks it to stop.

        After that the limit is the old one again, so that the machine's speed decides nothing.
        """
        job = self.desk.record(run, "start")["job"]

        def limit(minutes: int) -> None:
            self.desk.slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

        started = self.desk.record(run, "start")["time"]
        limit(int(time.time() - started) // 60 + 9)
        stop = run.path / "attempts" / "0.0" / "stop"
        until(stop.exists, f"the stop file of {run.id}")
        limit(60)

    def weights(self, run: Run) -> str:
        """What a training says of its weights at its end."""
        pattern = re.compile(r"^weights (\w+ after \d+ steps)$", re.MULTILINE)

        def told() -> str | None:
            logs = [path.read_text() for path in run.logs.glob("*/rank-00000.log")]
            return next((found[1] for log in logs if (found := pattern.search(log))), None)

        found: str = until(told, f"the weights of {run.id}")
        return found

    def endings(self, run: Run) -> list[str]:
        """How each attempt ended, once the run is over."""
        answer = self.desk.castoff("wait", run.id, "--json")
        (member,) = json.loads(answer.output)["members"]
        return [attempt["ending"] for attempt in member["attempts"]]


@pytest.fixture(scope="module")
def desk(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(slurm, tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def trainings(desk: Desk) -> Trainings:
    return Trainings(desk)


@pytest.fixture(scope="module")
def others(desk: Desk) -> dict[str, Run]:
    """Jobs that are not trainings."""
    again = ("--set", "requeue.max=1", "--walltime", "5m")
    return {
        "used up": desk.submit("--name", "used", *again, sh=WRITES_AGAIN),
        "failing": desk.submit("--name", "failing", *again, sh=f"{WRITES_AGAIN}; exit 3"),
        "of an array": desk.submit(
            *("--name", "members", *again, "--set", "array.count=10"),
            sh=f"[ $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT != 9.0 ] || {WRITES_AGAIN}",
        ),
    }


def test_interrupted_trainings_end_with_the_same_weights(
    trainings: Trainings, others: dict[str, Run], desk: Desk
) -> None:
    """Bit for bit: out of time, asked to stop, preempted, with its node gone."""
    for run in (trainings.late, trainings.stopped, trainings.preempted, trainings.lost):
        trainings.until_step(run, 7)
    trainings.run_out_of_time(trainings.late)
    assert desk.castoff("stop", trainings.stopped.id).code == 0
    urgent = desk.slurm("sbatch", "--parsable", "-p", "urgent", "-w", "n3", "--exclusive", "--wrap", "true")
    desk.slurm("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=broken")
    assert trainings.endings(trainings.stopped) == ["again"]
    assert desk.castoff("resubmit", trainings.stopped.id).code == 0
    # Slurm holds a job that it cannot launch on a node, as where its first start is not yet gone.
    log, last = desk.cluster.logs / "n4.log", f"[{trainings.lost.job}.0] done with job"
    until(lambda: last in log.read_text(), "the end of what the lost node ran")
    desk.slurm("scontrol", "update", "NodeName=n4", "State=RESUME")
    wanted = trainings.weights(trainings.whole)
    assert wanted.endswith(" after 48 steps")
    assert trainings.weights(trainings.late) == wanted
    assert trainings.endings(trainings.late) == ["again", "done"]
    assert trainings.weights(trainings.stopped) == wanted
    assert trainings.endings(trainings.stopped) == ["again", "done"]
    assert trainings.weights(trainings.preempted) == wanted
    assert trainings.endings(trainings.preempted) == ["preempted", "done"]
    assert trainings.weights(trainings.lost) == wanted
    assert trainings.endings(trainings.lost) == ["node-failure", "done"]
    assert desk.slurm("sacct", "-X", "-n", "-P", "-j", urgent, "-o", "State") == "COMPLETED"


def test_requeues_are_counted(others: dict[str, Run], desk: Desk) -> None:
    run = others["used up"]
    assert [desk.record(run, "ending", f"0.{attempt}")["ending"] for attempt in (0, 1)] == [
        "again",
        "walltime",
    ]
    assert "requeue.max (1) is used up" in run.script_log().read_text()
    assert desk.over(run)[0].endswith(" FAILED")


def test_a_failing_job_is_not_requeued(others: dict[str, Run], desk: Desk) -> None:
    """Whatever it says of its outcome."""
    run = others["failing"]
    assert desk.over(run)[0].endswith(" FAILED")
    assert desk.record(run, "ending")["ending"] == "failed" and len(run.attempts()) == 1


def test_one_member_is_requeued_alone(others: dict[str, Run], desk: Desk) -> None:
    """Also of an array's second part, where Slurm's index is another."""
    run = others["of an array"]
    assert desk.record(run, "ending", "9.1")["ending"] == "done"
    assert len(run.attempts()) == 11
