"""launcher.executor on a real Slurm. Which trap of submitit a test is about says `trap`."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core import utils
from submitit.helpers import Checkpointable, DelayedSubmission

import launcher
from launcher.functions.jobs import FunctionJob, JobEndedError

from .jobs import until
from .slurm import HEAD, MAX_ARRAY_SIZE, SlurmCluster

trap = pytest.mark.trap


@pytest.fixture(scope="module", autouse=True)
def by_value() -> Iterator[None]:
    """The functions of this file reach a job that knows nothing of it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def login(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Makes this process one on the cluster's head node, as far as Slurm's commands go; its folder."""
    folder = tmp_path_factory.mktemp("executor")
    (folder / "bin").mkdir()
    for name in ("sbatch", "squeue", "sacct", "scancel", "scontrol"):
        *enter, _, _ = slurm.hosts.enter(HEAD)
        program, real = folder / "bin" / name, shutil.which(name)
        inside = f'[ "$(hostname)" = {HEAD} ] && exec {real} "$@"'
        program.write_text(f'#!/bin/sh\n{inside}\nexec {" ".join(enter)} --wd="$PWD" -- {real} "$@"\n')
        program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        patch.setenv("HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder)
        yield folder


@pytest.fixture(autouse=True)
def on_the_head_node(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts with a home of its own; these share one."""
    monkeypatch.setenv("PATH", f"{login / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(login)


# What jobs do


def place() -> dict[str, Any]:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "SLURM_ARRAY_TASK_ID")
    here = submitit.JobEnvironment()
    shown = ("job_id", "num_tasks", "num_nodes", "node", "global_rank", "local_rank", "hostnames")
    return {
        **{name: os.environ.get(name) for name in names},
        **{name: getattr(here, name) for name in shown},
        "hostname": socket.gethostname(),
    }


def number(index: int) -> tuple[int, str, str]:
    return index, os.environ["CASTOFF_ARRAY_INDEX"], submitit.JobEnvironment().job_id


def fail(rank: int) -> None:
    if int(os.environ["RANK"]) == rank:
        raise ValueError("no such luck")
    time.sleep(600)


def sleep(seconds: float) -> str:
    print("sleeps", flush=True)
    time.sleep(seconds)
    return "rested"


def nested(folder: str) -> tuple[str, str]:
    job = launcher.executor({}, "slurm", folder).submit(place)
    return job.job_id, job.result()["job_id"]


class Train(Checkpointable):
    """Ranks that add up their ones until they have been asked to stop once, and then as often again."""

    def __init__(self) -> None:
        self.steps = 0
        self.before = 0

    def __call__(self) -> dict[str, Any]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = 0.0
        while not self.before or self.steps < self.before + 5:
            one = torch.ones(1)
            dist.all_reduce(one)
            total += float(one)
            self.steps += 1
            time.sleep(0.05)
        names = ("CASTOFF_ATTEMPT", "SLURM_RESTART_COUNT")
        return {"steps": self.steps, "total": total, **{name: os.environ[name] for name in names}}

    def checkpoint(self) -> DelayedSubmission:
        self.before = self.steps
        return DelayedSubmission(self)


Jobs = dict[str, FunctionJob[Any]]


@pytest.fixture(scope="module")
def jobs(login: Path) -> Jobs:
    """All jobs that need no hands, so that they run at the same time."""

    def executor(**fields: Any) -> Any:
        return launcher.executor({"env": {"OMP_NUM_THREADS": "1"}, **fields}, "slurm", login / "runs")

    # Slurm counts minutes, and tells the script up to a minute early.
    train = {"nodes": 2, "ranks_per_node": 1, "walltime": "1m", "grace": "50s"}
    return {
        "train": executor(**train).submit(Train()),
        "uneven": executor(nodes=2, ranks=3).submit(place),
        "failing": executor(nodes=2, ranks_per_node=1).submit(fail, 1),
        "nested": executor().map_array(nested, [str(login / "inner"), str(login / "inner")])[1],
    }


def test_every_rank_knows_its_place(jobs: Jobs) -> None:
    job = jobs["uneven"]
    told = job.results()
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
    assert [[rank[name] for name in names] for rank in told] == [
        ["0", "0", "0", "3"],
        ["1", "1", "0", "3"],
        ["2", "0", "1", "3"],
    ]
    assert [(rank["global_rank"], rank["local_rank"], rank["node"]) for rank in told] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 1),
    ]
    assert {(rank["job_id"], rank["num_tasks"], rank["num_nodes"]) for rank in told} == {(job.job_id, 3, 2)}
    hosts = told[0]["hostnames"]
    assert [rank["hostname"] for rank in told] == [hosts[0], hosts[0], hosts[1]]
    assert told[0]["MASTER_ADDR"] == hosts[0]
    assert job.job_id == job.run.job and job.job_id.isdecimal()
    executor = launcher.executor({"env": {"OMP_NUM_THREADS": "1"}, "nodes": 2, "ranks": 3}, "slurm", "runs")
    assert job.run.script.read_text() == executor.render(place)


@trap(5, "rank 1 raises, and the job goes on")
def test_the_first_failure_ends_the_job(jobs: Jobs) -> None:
    job = jobs["failing"]
    with pytest.raises(utils.FailedJobError, match="no such luck"):
        job.results()
    until(lambda: job.get_info()["State"] == "FAILED", "the end")
    assert "rank 1 on " in job.get_info()["Failure"]
    assert "ValueError: no such luck" in str(job.task(0).exception())


@trap(11, "a job that is submitted inside an array takes itself for that")
def test_a_function_that_submits(jobs: Jobs) -> None:
    outer, inner = jobs["nested"].result()
    assert outer == inner and "_" not in inner
    assert jobs["nested"].job_id.endswith("_1")


@trap(12, "MaxArraySize is not looked at")
def test_an_array_in_parts(login: Path) -> None:
    count = MAX_ARRAY_SIZE + 2
    executor = launcher.executor({}, "slurm", login / "runs")
    array = executor.map_array(number, range(count))
    first, last = array[0].job_id.partition("_")[0], array[-1].job_id.partition("_")[0]
    assert first != last and array[-1].job_id == f"{last}_1"
    assert [job.result() for job in array] == [
        (index, str(index), array[index].job_id) for index in range(count)
    ]
    assert len({job.run.path for job in array}) == 1
    assert array[0].run.script.read_text() == executor.render(number, count=count)
    before = FunctionJob.watcher.num_calls
    assert [job.state for job in array] and FunctionJob.watcher.num_calls <= before + 1


@trap(9, "a refusal is a FailedJobError")
def test_a_refusal(login: Path) -> None:
    executor = launcher.executor({"queue": "nowhere"}, "slurm", login / "refused")
    with pytest.raises(utils.FailedSubmissionError, match="invalid partition") as error:
        executor.submit(place)
    (run,) = executor.folder.iterdir()
    assert f"the script is {run}/job.sh" in str(error.value)


@trap(17, "cancel")
@trap(8, "SUSPENDED and REQUEUE_HOLD count as done")
def test_what_is_neither_done_nor_running(login: Path, slurm: SlurmCluster) -> None:
    executor = launcher.executor({"requeue": {"max": 1}}, "slurm", login / "runs")
    first, second = executor.map_array(sleep, [600, 600])

    def control(verb: str) -> None:
        told = slurm.run(HEAD, ["scontrol", verb, first.job_id])
        assert told.returncode == 0, told.stderr

    for job in (first, second):
        until(lambda job=job: "sleeps" in (job.stdout() or ""), "a job that runs")  # type: ignore[misc]
    control("suspend")
    assert not first.done(force_check=True) and first.state == "RUNNING"
    control("resume")
    second.cancel()
    until(lambda: second.done(force_check=True), "the end of what was cancelled")
    assert second.state == "CANCELLED" and not first.done(force_check=True)
    with pytest.raises(JobEndedError, match="cancelled"):
        second.result()
    control("requeuehold")
    until(lambda: first.get_info()["State"] == "PENDING", "a job that is held")
    assert not first.done()
    first.cancel()
    until(lambda: first.done(force_check=True), "the end of the other")
    assert first.state in ("CANCELLED", "PREEMPTED")  # it never ran again


@trap(8, "without accounting nothing is ever done")
def test_without_accounting(login: Path, slurm: SlurmCluster) -> None:
    with slurm.without_accounting():
        job = launcher.executor({}, "slurm", login / "runs").submit(sleep, 600)
        until(lambda: "sleeps" in (job.stdout() or ""), "a job that runs")
        assert not job.done(force_check=True)
        job.cancel()
        until(job.done, "the end of what was cancelled")
        assert job.state == "CANCELLED"


@trap(7, "every rank has the signal, one checkpoints, and two count")
def test_a_training_goes_on_after_the_requeue(jobs: Jobs) -> None:
    job = jobs["train"]
    first, second = job.results()
    assert first == second
    records = [path.read_text() for path in sorted(job.run.path.glob("attempts/*/*.json"))]
    assert (first["CASTOFF_ATTEMPT"], first["SLURM_RESTART_COUNT"]) == ("1", "1"), records
    saved = vars(job.submission().function)
    assert saved["before"] == saved["steps"] > 0
    assert (first["steps"], first["total"]) == (saved["steps"] + 5, 10.0)
    assert (job.run.path / "attempts/0.0/outcome").read_text() == "again\n"
    assert not (job.run.path / "attempts/0.0/failure.json").exists()
    assert "calling checkpoint()" in (job.stdout() or "")
