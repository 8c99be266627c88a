"""castoff.executor on a real Slurm. Which trap of submitit a test is about says `trap`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from submitit.core import utils

import castoff
from castoff.launcher.executors.function_job import FunctionJob, JobEndedError
from tests.patience import SECONDS, until

from . import functions
from .functions import Jobs, Train, fail, nested, number, place, sleep
from .slurm import HEAD, MAX_ARRAY_SIZE, SlurmCluster

trap = pytest.mark.trap


@pytest.fixture(scope="module", autouse=True)
def by_value() -> Iterator[None]:
    with functions.by_value():
        yield


@pytest.fixture(scope="module")
def login(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    commands = ("sbatch", "squeue", "sacct", "scancel", "scontrol")
    with functions.login(slurm, tmp_path_factory.mktemp("executor"), commands) as folder:
        yield folder


@pytest.fixture(autouse=True)
def on_the_head_node(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts with a home of its own; these share one."""
    monkeypatch.setenv("PATH", f"{login / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(login)


@pytest.fixture(autouse=True)
def slurm_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine; a job of which it says nothing would be UNKNOWN for a while."""
    monkeypatch.setattr("castoff.launcher.schedulers.base_queue.PATIENCE", SECONDS)
    monkeypatch.setattr("castoff.launcher.schedulers.slurm.queue._HISTORY_PATIENCE", SECONDS)


@pytest.fixture(scope="module")
def jobs(login: Path) -> Jobs:
    """All jobs that need no hands, so that they run at the same time."""

    def executor(**fields: Any) -> Any:
        return castoff.executor({"env": {"OMP_NUM_THREADS": "1"}, **fields}, "slurm", login / "runs")

    return {
        "train": executor(nodes=2, ranks_per_node=1, requeue={"max": 1}).submit(Train()),
        "uneven": executor(nodes=2, ranks=3).submit(place),
        "failing": executor(nodes=2, ranks_per_node=1).submit(fail, 1),
        "nested": executor().map_array(nested, ["slurm"] * 2, [str(login / "inner")] * 2)[1],
    }


def test_every_rank_knows_its_place(jobs: Jobs) -> None:
    job = jobs["uneven"]
    functions.check_places(job)
    assert job.job_id.isdecimal()
    executor = castoff.executor({"env": {"OMP_NUM_THREADS": "1"}, "nodes": 2, "ranks": 3}, "slurm", "runs")
    assert job.run.script.read_text() == executor.render(place)


@trap(5, "rank 1 raises, and the job goes on")
def test_the_first_failure_ends_the_job(jobs: Jobs) -> None:
    functions.check_first_failure(jobs["failing"])


@trap(11, "a job that is submitted inside an array takes itself for that")
def test_a_function_that_submits(jobs: Jobs) -> None:
    outer, inner = jobs["nested"].result()
    assert outer == inner and "_" not in inner
    assert jobs["nested"].job_id.endswith("_1")


@trap(12, "MaxArraySize is not looked at")
def test_an_array_in_parts(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = MAX_ARRAY_SIZE + 2
    executor = castoff.executor({}, "slurm", login / "runs")
    array = executor.map_array(number, range(count))
    first, last = array[0].job_id.partition("_")[0], array[-1].job_id.partition("_")[0]
    assert first != last and array[-1].job_id == f"{last}_1"
    assert [job.result() for job in array] == [
        (index, str(index), array[index].job_id) for index in range(count)
    ]
    assert len({job.run.path for job in array}) == 1
    assert array[0].run.script.read_text() == executor.render(number, count=count)
    monkeypatch.setattr("castoff.launcher.executors.watcher._SOON", SECONDS)
    until(lambda: all(job.watcher.is_done(job._key, "force") for job in array), "the end of its scripts")
    before = FunctionJob.watcher.num_calls
    assert [job.state for job in array] and FunctionJob.watcher.num_calls <= before + 1


@trap(9, "a refusal is a FailedJobError")
def test_a_refusal(login: Path) -> None:
    executor = castoff.executor({"queue": "nowhere"}, "slurm", login / "refused")
    with pytest.raises(utils.FailedSubmissionError, match="invalid partition") as error:
        executor.submit(place)
    (run,) = executor.folder.iterdir()
    assert f"the script is {run}/job.sh" in str(error.value)


@trap(17, "cancel")
@trap(8, "SUSPENDED and REQUEUE_HOLD count as done")
def test_what_is_neither_done_nor_running(login: Path, slurm: SlurmCluster) -> None:
    executor = castoff.executor({"requeue": {"max": 1}}, "slurm", login / "runs")
    first, second = executor.map_array(sleep, [600, 600])

    def control(verb: str) -> None:
        reported = slurm.run(HEAD, ["scontrol", verb, first.job_id])
        assert reported.returncode == 0, reported.stderr

    for job in (first, second):
        until(lambda job=job: "sleeps" in (job.stdout() or ""), "a job that runs")  # type: ignore[misc]
    control("suspend")
    assert not first.done(force_check=True) and first.state == "RUNNING"
    control("resume")
    functions.cancel_second_alone(first, second)
    with pytest.raises(JobEndedError, match="cancelled"):
        second.result()
    control("requeuehold")
    until(lambda: first.get_info()["State"] == "PENDING", "a job that is held")
    assert not first.done()
    first.cancel()
    until(lambda: first.done(force_check=True), "the end of the other")
    assert first.state in ("CANCELLED", "PREEMPTED")  # it never ran again


def test_what_it_waits_for_can_never_happen(login: Path, slurm: SlurmCluster) -> None:
    first = castoff.executor({"directives": {"hold": True}}, "slurm", login / "runs").submit(sleep, 600)
    waits = {"after": {"afterok": [first.job_id]}}
    second = castoff.executor(waits, "slurm", login / "runs").submit(sleep, 600)
    first.cancel()
    with pytest.raises(JobEndedError, match=r"can never begin\n.*DependencyNeverSatisfied") as error:
        second.result()
    assert f"`castoff cancel {second.run.id}` takes it out of the queue" in str(error.value)
    assert second.state == "PENDING"
    second.cancel()


@trap(8, "without accounting nothing is ever done")
def test_without_accounting(login: Path, slurm: SlurmCluster) -> None:
    with slurm.without_accounting():
        job = castoff.executor({}, "slurm", login / "runs").submit(sleep, 600)
        until(lambda: "sleeps" in (job.stdout() or ""), "a job that runs")
        assert not job.done(force_check=True)
        job.cancel()
        until(job.done, "the end of what was cancelled")
        assert job.state == "CANCELLED"


@trap(7, "every rank has the signal, one checkpoints, and two count")
def test_a_training_resumes_after_the_requeue(jobs: Jobs, slurm: SlurmCluster) -> None:
    """As Slurm does before the walltime, the script is sent USR2; not by the clock, which torch may miss."""
    job = jobs["train"]
    until(lambda: "trains" in (job.stdout() or ""), "its first step")
    assert slurm.run(HEAD, ["scancel", "--batch", "--signal=USR2", job.job_id]).returncode == 0
    assert functions.check_training(job)["slurm"] == "1"
