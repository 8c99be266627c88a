"""submitit's AutoExecutor on PBS: what tests/cluster/test_executor.py says of Slurm, and PBS's own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import submitit
from submitit.core import utils
from submitit.helpers import Checkpointable

from castoff.launcher.errors import InvalidInput
from castoff.launcher.executors.function_job import FunctionJob, JobEndedError
from tests.cluster import HEAD, functions
from tests.cluster.functions import Jobs, Train, fail, nested, number, place, sleep
from tests.patience import until
from tests.pbs.cluster import PbsCluster
from tests.records import submission_of

pytestmark = pytest.mark.costly

trap = pytest.mark.trap


@pytest.fixture(scope="module", autouse=True)
def by_value() -> Iterator[None]:
    with functions.by_value(__name__):
        yield


@pytest.fixture(scope="module")
def login(pbs: PbsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    commands = ("qsub", "qstat", "qselect", "qdel", "qsig")
    with functions.login(pbs, tmp_path_factory.mktemp("executor"), commands) as folder:
        yield folder


@pytest.fixture(autouse=True)
def on_the_head_node(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts with a home of its own; these share one."""
    monkeypatch.setenv("PATH", f"{login / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(login)


def auto(folder: Path | str = "runs", **parameters: Any) -> Any:
    """An AutoExecutor on PBS."""
    spec = {"env": {"OMP_NUM_THREADS": "1"}}
    executor = submitit.AutoExecutor(folder, cluster="pbs", pbs_spec=spec)
    executor.update_parameters(**parameters)
    return executor


class Wait(Checkpointable):
    """Waits to be asked to stop where that was done as often as its number says; of -1 always."""

    def __init__(self) -> None:
        self.stopped = 0

    def __call__(self, number: int = 0) -> tuple[int, int, str, str]:
        waits = number in (self.stopped, -1)
        print("waits" if waits else "goes on", flush=True)
        while waits:
            time.sleep(0.1)
        return number, self.stopped, os.environ["CASTOFF_ATTEMPT"], submitit.JobEnvironment().job_id

    def checkpoint(self, number: int = 0) -> utils.DelayedSubmission:
        self.stopped += 1
        return utils.DelayedSubmission(self, number)


@pytest.fixture(scope="module")
def submitted(login: Path) -> Jobs:
    """Nearly all jobs of this module, so that they run at the same time."""
    train = auto(nodes=2, tasks_per_node=1, timeout_min=10).submit(Train())
    members = auto().map_array(Wait(), [1, 0])
    array = auto().map_array(sleep, [600, 600])
    runs = auto().submit(sleep, 600)
    return {
        "train": train,
        "chain": auto(pbs_requeue={"max": 1, "how": "chain"}).submit(Wait()),
        "late": auto(pbs_walltime="10m", pbs_grace="596s").submit(Wait()),
        "walltime": auto(pbs_walltime="3s", pbs_grace="1s").submit(sleep, 600),
        "uneven": auto(nodes=2, pbs_ranks=3).submit(place),
        "failing": auto(nodes=2, tasks_per_node=1).submit(fail, 1),
        "nested": auto().map_array(nested, ["pbs"] * 2, [str(login / "inner")] * 2)[1],
        "endless": auto().submit(Wait(), -1),
        "steady": members[0],
        "wavering": members[1],
        "killed": auto().submit(sleep, 600),
        "rerun": auto(pbs_requeue={"max": 1}).submit(sleep, 600),
        "first": array[0],
        "second": array[1],
        "deleted": runs,
        "waiting": auto(pbs_after={"afterok": [runs.run.id]}).submit(place),
        "void": auto(pbs_after={"afterok": [runs.run.id]}).submit(place),
    }


@pytest.fixture(scope="module")
def jobs(submitted: Jobs, pbs: PbsCluster) -> Jobs:
    """The same, after some of them have met with something: an end takes PBS ten seconds."""

    def tell(*words: str) -> None:
        reported = pbs.run(HEAD, words)
        assert reported.returncode == 0, reported.stderr

    waiting = submitted["waiting"]
    assert waiting.get_info()["State"] == "PENDING" and not waiting.done()
    for name in ("deleted", "killed", "rerun", "first", "second"):
        says(submitted[name], "sleeps")
    tell("qdel", waiting.job_id)
    tell("qdel", submitted["deleted"].job_id)
    tell("qsig", "-s", "SIGKILL", submitted["killed"].job_id)
    tell("qrerun", submitted["rerun"].job_id)  # as preemption does, where it requeues
    submitted["second"].cancel()
    for name in ("wavering", "endless", "chain", "train"):
        says(submitted[name], "trains" if name == "train" else "waits")
        # as its script does before the walltime
        (submitted[name].paths.attempt_folder / "stop").touch()
    return submitted


def says(job: FunctionJob[Any], word: str, times: int = 1) -> None:
    """Wait until a job has said something."""
    until(lambda: (job.stdout() or "").count(word) >= times, f"{job.job_id} says {word}")


def ends(job: FunctionJob[Any]) -> None:
    """Wait until nothing of a job is left."""
    until(lambda: job.done(force_check=True), f"the end of {job.job_id}")


def test_every_rank_knows_its_place(jobs: Jobs, pbs: PbsCluster) -> None:
    job = jobs["uneven"]
    assert type(job) is FunctionJob and type(job.task(1)) is FunctionJob
    functions.check_places(job)
    assert {rank["CASTOFF_LAUNCHER"] for rank in job.results()} == {"hydra"}
    assert job.job_id.partition(".")[0].isdecimal() and job.job_id.partition(".")[2].startswith("head")
    assert job.run.script.read_text() == auto(nodes=2, pbs_ranks=3)._executor.render(place)
    until(lambda: job.get_info()["State"] == "COMPLETED", "the end")
    again: FunctionJob[Any] = FunctionJob(job.run.path, job.job_id, range(3))
    assert again.done() and again.results() == job.results()


def test_many_are_one_array(login: Path) -> None:
    executor = auto(name="many")
    jobs = executor.map_array(number, range(3))
    with executor.batch():
        batch = [executor.submit(number, index) for index in (5, 6)]
        with pytest.raises(AttributeError, match="batch"):
            batch[0].result()
    for array, numbers in ((jobs, range(3)), (batch, (5, 6))):
        whole = array[0].run.job
        assert "[]" in whole and len({job.run.path for job in array}) == 1
        assert [job.job_id for job in array] == [
            whole.replace("[]", f"[{index}]") for index in range(len(array))
        ]
        assert [job.result() for job in array] == [
            (number, str(index), array[index].job_id) for index, number in enumerate(numbers)
        ]
        assert all(job.done() for job in array)
    (alone,) = executor.map_array(number, [4])  # qsub refuses -J 0-0
    assert "[" not in alone.job_id and alone.result() == (4, "0", alone.job_id)
    before = FunctionJob.watcher.num_calls
    assert {job.state for job in (*jobs, *batch)} <= {"COMPLETED", "RUNNING"}
    assert FunctionJob.watcher.num_calls <= before + 1


@trap(5, "rank 1 raises, and the job goes on")
def test_the_first_failure_ends_the_job(jobs: Jobs) -> None:
    functions.check_first_failure(jobs["failing"])


@trap(11, "a job that is submitted inside an array takes itself for that")
def test_a_function_that_submits(jobs: Jobs) -> None:
    outer, inner = jobs["nested"].result()
    assert outer == inner and "[" not in inner
    assert "[1]" in jobs["nested"].job_id


@trap(9, "a refusal is a FailedJobError")
def test_a_refusal(login: Path) -> None:
    executor = auto(login / "refused", pbs_queue="nowhere")
    with pytest.raises(utils.FailedSubmissionError, match="Unknown queue") as error:
        executor.submit(place)
    (run,) = executor.folder.iterdir()
    assert f"the script is {run}/job.sh" in str(error.value)


def test_mistakes_are_reported_before_qsub(login: Path) -> None:
    executor = auto(login / "wrong", tasks_per_node=2, gpus_per_node=3)
    with pytest.raises(InvalidInput, match="gpus_per_node: is 3, but must be a multiple"):
        executor.submit(place)
    small = submitit.AutoExecutor(login / "wrong", cluster="pbs", pbs_max_pickle_size_gb=1e-5)
    with pytest.raises(RuntimeError, match="nothing was sent"):
        small.map_array(len, [b"x" * 8000] * 3)
    assert not (login / "wrong").exists() or not [*(login / "wrong").iterdir()]


def test_a_script_that_is_killed(jobs: Jobs, pbs: PbsCluster) -> None:
    """OpenPBS says of root's jobs, as these are, that they ended well."""
    job = jobs["killed"]
    ends(job)
    with pytest.raises(JobEndedError, match="unknown|cancelled" if pbs.is_real else "cancelled"):
        job.result()
    assert job.state in (("UNKNOWN", "CANCELLED") if pbs.is_real else ("CANCELLED",))


def test_one_that_pbs_starts_again(jobs: Jobs) -> None:
    job = jobs["rerun"]
    says(job, "sleeps", times=2)
    assert not job.done(force_check=True) and job.state == "RUNNING"
    assert job.get_info()["Attempts"] == "2"


def test_cancel_one_of_an_array(jobs: Jobs) -> None:
    ends(jobs["second"])
    with pytest.raises(JobEndedError, match="cancelled"):
        jobs["second"].result()
    assert jobs["second"].state == "CANCELLED"
    assert not jobs["first"].done(force_check=True) and jobs["first"].state == "RUNNING"


def test_what_pbs_deletes(jobs: Jobs) -> None:
    for name in ("deleted", "waiting", "void"):
        ends(jobs[name])
        with pytest.raises(JobEndedError, match="cancelled"):
            jobs[name].result()
        assert jobs[name].state == "CANCELLED"
    assert "can no longer be met" in jobs["void"].get_info()["Reason"]


def test_the_walltime_of_a_job_that_cannot_be_resumed(jobs: Jobs) -> None:
    job = jobs["walltime"]
    with pytest.raises(JobEndedError, match="walltime") as error:
        job.result()
    assert error.value.ending == "walltime" and job.state == "TIMEOUT"


def test_one_member_of_an_array_resumes_alone(jobs: Jobs) -> None:
    assert jobs["steady"].result()[:3] == (1, 0, "0")
    number, stopped, attempt, job = jobs["wavering"].result()
    assert (number, stopped, attempt) == (0, 1, "1")
    assert job != jobs["wavering"].job_id and "[1]" in job
    assert not (jobs["wavering"].run.path / "attempts/0.1").exists()


@trap(7, "every rank has the signal, one checkpoints, and two count")
def test_a_training_resumes_as_another_job(jobs: Jobs) -> None:
    functions.check_training(jobs["train"])


def test_resuming_in_a_chain(jobs: Jobs) -> None:
    job = jobs["chain"]
    sent = [send.job for send in submission_of(job.run).sends]
    assert job.job_id == sent[0] and job.result() == (0, 1, "1", sent[1])


def test_resuming_before_the_walltime(jobs: Jobs) -> None:
    job = jobs["late"]
    number, stopped, attempt, again = job.result()
    assert (number, stopped, attempt) == (0, 1, "1") and again != job.job_id
    reported = job.stdout() or ""
    assert reported.count("waits") == 1 and "goes on" in reported
    assert job.state in ("RUNNING", "COMPLETED") and job.get_info()["Attempts"] == "2"


def test_cancel(jobs: Jobs) -> None:
    """Also what has gone on as another job, and what PBS has started again."""
    cancelled = [jobs[name] for name in ("endless", "rerun", "first")]
    says(jobs["endless"], "waits", times=2)
    assert not jobs["endless"].done(force_check=True) and jobs["endless"].state == "RUNNING"
    for job in cancelled:
        job.cancel()
    for job in cancelled:
        ends(job)
        assert job.state == "CANCELLED"
        with pytest.raises(JobEndedError, match="cancelled"):
            job.result()


def test_without_history(login: Path, pbs: PbsCluster) -> None:
    """The last, for a server that forgets those that end forgets those that have, too."""
    with pbs.without_history():
        done, cancelled = auto().map_array(sleep, [0, 600])
        assert done.result() == "rested"
        until(lambda: done.get_info()["State"] == "COMPLETED", "its end")
        says(cancelled, "sleeps")
        assert not cancelled.done(force_check=True)
        cancelled.cancel()
        ends(cancelled)
        assert cancelled.state == "CANCELLED"
