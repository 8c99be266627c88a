"""Jobs that stop early, or are stopped, go on from where they were; others do not.

All are submitted at once, on nodes of their own, because most of them have to wait for Slurm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.runs.run import RunDirectory
from tests.patience import until

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

CHECKOUT = Path(__file__).resolve().parents[2]

CAUSETS = f"""
name: causets
command:
  - castoff
  - train
  - gnn
  - {CHECKOUT}/examples/causets.yaml
  - --set=criterion=!pyobject tests.cluster.slow_causets.compute_loss
  - --set=data.causets.number=128
  - --set=data.causets.size=[12,16]
  - --set=data.split=[0.75,0.125,0.125]
  - --set=training.batch_size=4
  - --set=training.num_epochs=8
  - --set=training.checkpoint_every_steps=5
  - --set=training.log_every=1
nodes: 2
ranks_per_node: 2
walltime: 1h
grace: 30m
requeue: {{max: 2}}
directives: {{nodelist: "n1,n2"}}
python: {sys.executable}
env: {{PYTHONPATH: {CHECKOUT}}}
"""
"""As somebody would train the example's network, on little data."""

SLOW = ("--set", "env.SLOW=yes")

WRITES_RESUME = "echo resume >$CASTOFF_OUTCOME_FILE"


class Trainings:
    """What trainings do that have been submitted."""

    def __init__(self, desk: Desk):
        self.desk = desk

    def folder(self, run: RunDirectory) -> Path | None:
        """Where a training keeps what it has, once it has begun."""
        return next((self.desk.folder / "trained").glob(f"*_{run.id}"), None)

    def until_step(self, run: RunDirectory, wanted: int) -> None:
        """Wait until a training has made so many steps."""

        def reached() -> bool:
            assert not (run.path / "attempts" / "0.0" / "ending.json").exists(), run.script_log().read_text()
            folder = self.folder(run)
            if folder is None or not (folder / "metrics.jsonl").exists():
                return False
            lines = (folder / "metrics.jsonl").read_text().splitlines()
            steps = [json.loads(line)["step"] for line in lines if line.endswith("}")]
            return max(steps, default=0) >= wanted

        until(reached, f"step {wanted} of {run.id}")

    def near_its_end(self, run: RunDirectory) -> None:
        """Let Slurm find a training so near to its time limit that it asks it to stop."""
        started = self.desk.record(run, "start")["time"]
        self._limit(run, int(time.time() - started) // 60 + 29)

    def has_time_again(self, run: RunDirectory) -> None:
        """Once it has been asked, the limit is the old one, so that the machine's speed decides nothing."""
        stop = run.path / "attempts" / "0.0" / "stop"
        until(stop.exists, f"the stop file of {run.id}")
        self._limit(run, 60)

    def _limit(self, run: RunDirectory, minutes: int) -> None:
        job = self.desk.record(run, "start")["job"]
        self.desk.slurm("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    def weights(self, run: RunDirectory) -> str:
        """What a training says of its weights at its end."""
        pattern = re.compile(r"^weights (\w+ after \d+ steps)$", re.MULTILINE)

        def reported() -> str | None:
            logs = [path.read_text() for path in run.log_folder.glob("*/rank-00000.log")]
            return next((found[1] for log in logs if (found := pattern.search(log))), None)

        found: str = until(reported, f"the weights of {run.id}")
        return found

    def end(self, run: RunDirectory) -> tuple[str, list[dict[str, Any]]]:
        """The weights of a training on causal sets at its end, and all that it has measured."""
        from tests.trainers.toys import lasting_lines

        folder = self.folder(run)
        assert folder is not None
        weights = folder / "checkpoints" / "step-0000000048" / "model.pt"
        return hashlib.sha256(weights.read_bytes()).hexdigest(), lasting_lines(folder)

    def endings(self, run: RunDirectory) -> list[str]:
        """How each attempt ended, once the run is over."""
        answer = self.desk.castoff("wait", run.id, "--json")
        (member,) = json.loads(answer.output)["members"]
        return [attempt["ending"] for attempt in member["attempts"]]


@pytest.fixture(scope="module")
def desk(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(slurm, tmp_path_factory.mktemp("desk"))


class Toys(Trainings):
    """The trainings that are interrupted, each in its own way; out of time, two ranks agree."""

    def __init__(self, desk: Desk):
        super().__init__(desk)
        self.late = self._submit("late", "n1", 2)
        self.stopped = self._submit("stopped", "n2", 1)
        self.preempted = self._submit("preempted", "n3", 1)
        self.lost = self._submit("lost", "n4", 1)

    def _submit(self, name: str, node: str, ranks: int) -> RunDirectory:
        return self.desk.submit(
            *("--name", name, "--ranks-per-node", str(ranks), "--walltime", "1h"),
            *("--set", "requeue.max=2", "--set", "grace=30m", "--set", f"directives.nodelist={node}"),
            *("--set", f"env.PYTHONPATH={CHECKOUT}", *SLOW),
            command=[sys.executable, "-m", "tests.cluster.toy_training"],
        )


@pytest.fixture(scope="module")
def trainings(desk: Desk) -> Toys:
    return Toys(desk)


@pytest.fixture(scope="module")
def others(desk: Desk) -> dict[str, RunDirectory]:
    """Jobs that are not trainings."""
    again = ("--set", "requeue.max=1", "--walltime", "5m")
    return {
        "used up": desk.submit("--name", "used", *again, sh=WRITES_RESUME),
        "failing": desk.submit("--name", "failing", *again, sh=f"{WRITES_RESUME}; exit 3"),
        "of an array": desk.submit(
            *("--name", "members", *again, "--set", "array.count=10"),
            sh=f"[ $CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT != 9.0 ] || {WRITES_RESUME}",
        ),
    }


def interrupt_the_others(trainings: Toys, desk: Desk) -> str:
    """Stop one, preempt one, and take one's node away; the id of the job that came before the second."""
    trainings.until_step(trainings.stopped, 7)
    assert desk.castoff("stop", trainings.stopped.id).code == 0
    trainings.until_step(trainings.preempted, 7)
    urgent = desk.slurm("sbatch", "--parsable", "-p", "urgent", "-w", "n3", "--exclusive", "--wrap", "true")
    trainings.until_step(trainings.lost, 7)
    desk.slurm("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=broken")
    return urgent


def uninterrupted(ranks: int, folder: Path) -> str:
    """What the weights of such a training come to where nothing happens to it."""
    from tests.cluster import toy_training
    from tests.trainers.toys import run

    place = folder / str(ranks)
    place.mkdir()
    with contextlib.chdir(place):
        learned, *_ = run(toy_training.learned, folder=place / "ranks", world_size=ranks)
    return str(learned)


@pytest.mark.costly
def test_interrupted_trainings_end_with_the_same_weights(
    trainings: Toys, others: dict[str, RunDirectory], desk: Desk, tmp_path: Path
) -> None:
    """Bit for bit: out of time, asked to stop, preempted, with its node gone."""
    # Each as soon as it has come so far: none waits for the others to begin, which may take a while.
    trainings.until_step(trainings.late, 7)
    trainings.near_its_end(trainings.late)
    with ThreadPoolExecutor(1) as beside:  # its next attempt is not to begin with little time, too
        has_time_again = beside.submit(trainings.has_time_again, trainings.late)
        urgent = interrupt_the_others(trainings, desk)
        has_time_again.result()
    assert trainings.endings(trainings.stopped) == ["resume"]
    assert desk.castoff("resubmit", trainings.stopped.id).code == 0
    # Slurm holds a job that it cannot launch on a node, as where its first start is not yet gone.
    log, last = desk.cluster.logs / "n4.log", f"[{trainings.lost.job}.0] done with job"
    until(lambda: last in log.read_text(), "the end of what the lost node ran")
    desk.slurm("scontrol", "update", "NodeName=n4", "State=RESUME")
    one, two = uninterrupted(1, tmp_path), uninterrupted(2, tmp_path)
    assert one.endswith(" after 105 steps") and two.endswith(" after 55 steps")
    assert trainings.weights(trainings.late) == two
    assert trainings.endings(trainings.late) == ["resume", "done"]
    assert trainings.weights(trainings.stopped) == one
    assert trainings.endings(trainings.stopped) == ["resume", "done"]
    assert trainings.weights(trainings.preempted) == one
    assert trainings.endings(trainings.preempted) == ["preempted", "done"]
    assert trainings.weights(trainings.lost) == one
    assert trainings.endings(trainings.lost) == ["node-failure", "done"]
    assert desk.slurm("sacct", "-X", "-n", "-P", "-j", urgent, "-o", "State") == "COMPLETED"


@pytest.mark.long
def test_a_system_that_runs_out_of_time_ends_with_the_same_weights(desk: Desk) -> None:
    """On two nodes, with all that it measures."""
    (desk.folder / "causets.yaml").write_text(CAUSETS)
    trainings = Trainings(desk)
    late, whole = desk.submit_file("causets.yaml", *SLOW), desk.submit_file("causets.yaml")
    trainings.until_step(late, 7)
    trainings.near_its_end(late)
    trainings.has_time_again(late)
    assert trainings.endings(whole) == ["done"]
    assert trainings.endings(late) == ["resume", "done"]
    assert trainings.end(late) == trainings.end(whole)


def test_requeues_are_counted(others: dict[str, RunDirectory], desk: Desk) -> None:
    run = others["used up"]
    assert [desk.record(run, "ending", f"0.{attempt}")["ending"] for attempt in (0, 1)] == [
        "resume",
        "walltime",
    ]
    assert "requeue.max (1) is used up" in run.script_log().read_text()
    assert desk.over(run)[0].endswith(" FAILED")


def test_a_failing_job_is_not_requeued(others: dict[str, RunDirectory], desk: Desk) -> None:
    """Whatever it says of its outcome."""
    run = others["failing"]
    assert desk.over(run)[0].endswith(" FAILED")
    assert desk.record(run, "ending")["ending"] == "failed" and len(run.attempts()) == 1


def test_one_member_is_requeued_alone(others: dict[str, RunDirectory], desk: Desk) -> None:
    """Also of an array's second part, where Slurm's index is another."""
    run = others["of an array"]
    assert desk.record(run, "ending", "9.1")["ending"] == "done"
    assert len(run.attempts()) == 11
