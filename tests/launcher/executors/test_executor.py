"""castoff.executor on the local scheduler. Which trap of submitit a test is about says `trap`.

The numbers are those of the list in docs/how-to/submitit.md, "What differs from submitit".
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pickle
import re
import signal
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import psutil
import pytest
import submitit
from submitit.core import plugins, utils
from submitit.core.job_environment import JobEnvironment
from submitit.helpers import Checkpointable, DelayedSubmission, as_completed

import castoff
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Requeue
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput
from castoff.launcher.executors.executor import CastoffExecutor, PbsExecutor, SubmissionError
from castoff.launcher.executors.function_job import FunctionJob, JobEndedError
from castoff.launcher.executors.watcher import RunWatcher
from castoff.launcher.runs.owner import is_alive
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.status import watch
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.submission.resubmit import resubmit
from tests import patience

from ..conftest import give_away, local_runs, processes_of

trap = pytest.mark.trap
Executors = Callable[..., CastoffExecutor]


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """The functions of this file reach a job that knows nothing of it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_real: None) -> Iterator[Executors]:
    """Makes executors; what still runs at the end is killed."""
    monkeypatch.chdir(tmp_path)
    yield lambda site="local", **fields: castoff.executor(fields, site, tmp_path / "runs")
    for run in local_runs(tmp_path):
        for process in processes_of(run) if is_alive(run) else ():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def settle(job: FunctionJob[Any]) -> None:
    """Wait until its script is over too: the result is there a moment earlier."""
    patience.until(lambda: job.watcher.is_done(job._key, "force"), f"the end of {job.job_id}")


# What jobs do


def place() -> dict[str, Any]:
    """What a rank sees."""
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CASTOFF_ARRAY_INDEX"]
    names += ["CUDA_VISIBLE_DEVICES", "SUBMITIT_EXECUTOR", "CASTOFF_RUN_DIR"]
    return {name: os.environ.get(name) for name in names}


def environment() -> dict[str, Any]:
    here = submitit.JobEnvironment()
    names = ["job_id", "num_tasks", "num_nodes", "node", "global_rank", "local_rank", "hostnames", "cluster"]
    names += ["raw_job_id", "array_job_id", "array_task_id"]
    return {**{name: getattr(here, name) for name in names}, "paths": vars(here.paths)}


def fail(message: str, rank: int = 0) -> int:
    if int(os.environ["RANK"]) == rank:
        raise ValueError(message)
    signal.pause()
    return 0


def has_wave() -> bool:
    """Whether somebody has imported that module, which nothing else here does."""
    return "wave" in sys.modules


def fail_at_first() -> str:
    if os.environ["CASTOFF_ATTEMPT"] == "0":
        raise ValueError("not yet")
    return os.environ["CASTOFF_ATTEMPT"]


def hang() -> None:
    """As the script's watcher has it."""
    stacks = Path(os.environ["CASTOFF_LOG_DIR"], "stacks")
    stacks.mkdir(exist_ok=True)
    (stacks / "rank-00000.txt").write_text('  File "data.py", line 88 in read_batch\n')
    failure = {"rank": 0, "host": "n1", "code": 1, "log": "rank-00000.log", "reason": "hang"}
    Path(os.environ["CASTOFF_FAILURE_FILE"]).write_text(json.dumps(failure))
    os._exit(1)


def sleep(seconds: float) -> str:
    print("sleeps", flush=True)
    time.sleep(seconds)
    return "rested"


def leave(code: int) -> None:
    sys.exit(code)


class Count(Checkpointable):
    """Counts to ten, and is interrupted at five."""

    def __init__(self) -> None:
        self.step = 0
        self.interrupted = 0

    def __call__(self) -> tuple[int, int, str]:
        print("begins at", self.step, flush=True)
        try:
            while self.step < 10:
                self.step += 1
                if self.step == 5 and not self.interrupted:
                    Path(os.environ["CASTOFF_STOP_FILE"]).touch()
                    time.sleep(600)
        except Exception:  # noqa: BLE001 - as a training loop may do
            print("swallowed", flush=True)
        return self.step, self.interrupted, os.environ["CASTOFF_ATTEMPT"]

    def checkpoint(self) -> DelayedSubmission:
        print("saves at", self.step, flush=True)
        self.interrupted += 1
        return DelayedSubmission(self)


class Meet(Checkpointable):
    """Ranks that add up their ones, step by step."""

    def __init__(self, steps: int):
        self.step = 0
        self.steps = steps

    def __call__(self) -> tuple[int, float, str]:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        total = torch.zeros(1)
        while self.step < self.steps:
            one = torch.ones(1)
            dist.all_reduce(one)
            total += one
            self.step += 1
            if self.step == 5 and dist.get_rank() == 0 and os.environ["CASTOFF_ATTEMPT"] == "0":
                Path(os.environ["CASTOFF_STOP_FILE"]).touch()
            if os.environ["CASTOFF_ATTEMPT"] == "0":
                time.sleep(0.02)
        return self.step, float(one), os.environ["CASTOFF_ATTEMPT"]


class Endless(Checkpointable):
    """Asks for a stop at once, whenever it begins."""

    def __init__(self) -> None:
        self.starts = 0

    def __call__(self) -> int:
        self.starts += 1
        Path(os.environ["CASTOFF_STOP_FILE"]).touch()
        time.sleep(600)
        return self.starts


class NotAgain(Endless):
    def checkpoint(self) -> None:  # type: ignore[override]
        """Does not want to go on."""


# Submitting


def test_a_function_on_two_ranks(executors: Executors) -> None:
    job = executors(ranks_per_node=2).submit(place)
    first, second = job.results()
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["WORLD_SIZE"] == "2" and first["MASTER_ADDR"] and first["MASTER_PORT"]
    assert first["SUBMITIT_EXECUTOR"] == "castoff" and first["CASTOFF_RUN_DIR"] == str(job.run.path)
    assert job.num_tasks == 2 and job.task(1).result() == second
    assert job.done() and job.exception() is None
    assert job.job_id == job.run.job and "Starting with JobEnvironment" in (job.stdout() or "")
    assert (
        job.task(1).stdout()
        == (job.run.log_folder / "0.0/rank-00001.log").read_text()
        == job.task(1).stderr()
    )
    with pytest.raises(AssertionError, match="results"):
        job.result()


def test_arguments_and_what_they_are_reported(executors: Executors) -> None:
    job = executors().submit(divmod, 7, 2)
    assert job.result() == (3, 1)
    assert job.submission().args == (7, 2)
    assert job.state == job.get_info()["State"] == "COMPLETED"
    assert job.get_info()["Ending"] == "done" and job.get_info()["Run"] == str(job.run.path)
    assert job.paths.submission_file == job.run.script
    again = FunctionJob[tuple[int, int]](job.run.path, job.job_id)
    assert again.result() == (3, 1)
    assert pickle.loads(pickle.dumps(job)).result() == (3, 1)
    with pytest.raises(CastoffError, match="no job 'local-1' was submitted from this directory"):
        FunctionJob(job.run.path, "local-1")


@pytest.mark.long
def test_functions_in_copies_of_one_process(executors: Executors) -> None:
    plain, copies = (executors(launcher={"preload": modules}) for modules in ([], ["wave"]))
    knowing = [executor.submit(has_wave) for executor in (plain, copies)]
    failing = [executor.submit(fail, "why") for executor in (plain, copies)]
    counting = copies.submit(Count())
    assert [job.result() for job in knowing] == [False, True]
    errors = [str(job.exception()).replace(str(job.run.path), "RUN") for job in failing]
    assert errors[0] == errors[1] and "ValueError: why" in errors[0]
    assert counting.result() == (10, 1, "1")


@pytest.mark.everyday("False")
@pytest.mark.parametrize("fails", [False, True])
def test_teardown_of_a_function(executors: Executors, tmp_path: Path, fails: bool) -> None:
    torn = tmp_path / "torn"
    lines = [f"echo $CASTOFF_OUTCOME $CASTOFF_EXIT_CODE >{torn}", "no_such_command"]
    job = executors(teardown=lines).submit(lambda: 1 // (not fails))
    assert (job.exception() is not None) is fails
    patience.until(lambda: job.watcher.is_done(job._key, "force"), f"the end of {job.job_id}")
    assert torn.read_text() == ("failed 1\n" if fails else "done 0\n")


def test_functions_have_no_numbers_of_their_own(executors: Executors) -> None:
    with pytest.raises(InvalidInput, match=r"array\.indices: is for commands: functions are numbered from 0"):
        executors(array={"indices": "1,3"})
    with pytest.raises(InvalidInput, match=r"array\.parameters: is for commands: functions are numbered"):
        executors(array={"parameters": {"a": [1]}})


@pytest.mark.long
def test_the_environment_that_submitit_shows(executors: Executors) -> None:
    jobs = executors(ranks_per_node=2).map_array(lambda _: environment(), range(2))
    reported = jobs[1].results()[1]
    array = jobs[1].run.job
    assert reported["paths"].pop("within").parent == Path("/proc/self/fd")
    assert reported.pop("paths") == {
        "_folder": jobs[1].run.path,
        "job_id": f"{array}_1",
        "task_id": 1,
        "member": 1,
        "attempt": 0,
    }
    assert reported.pop("hostnames") == [os.uname().nodename]
    assert reported == {
        "job_id": f"{array}_1",
        "raw_job_id": array,
        "array_job_id": array,
        "array_task_id": "1",
        "cluster": "castoff",
        "num_tasks": 2,
        "num_nodes": 1,
        "node": 0,
        "global_rank": 1,
        "local_rank": 1,
    }


@trap(12, "map_array builds submitit's own SlurmExecutor, whose script is submitit's")
def test_an_array_is_one_run_with_our_script(executors: Executors) -> None:
    executor = executors(array={"max_concurrent": 2})
    jobs = executor.map_array(pow, [2, 3, 4], [5, 5, 5])
    assert {job.run.path for job in jobs} == {jobs[0].run.path}
    assert all(type(job) is FunctionJob for job in jobs)
    assert [job.job_id for job in jobs] == [f"{jobs[0].run.job}_{member}" for member in range(3)]
    assert [job.result() for job in jobs] == [32, 243, 1024]
    plan = json.loads((jobs[0].run.path / "plan.json").read_text())
    assert (plan["array_count"], plan["array_max_concurrent"], plan["function"]) == (3, 2, True)
    assert jobs[0].run.script.read_text() == executor.render(pow, count=3)
    assert [path.name for path in (executor.folder).iterdir()] == [jobs[0].run.id]


@trap(12, "an array of one")
def test_an_array_of_one_is_a_job(executors: Executors) -> None:
    (job,) = executors().map_array(abs, [-3])
    assert job.result() == 3 and job.job_id == job.run.job
    with pytest.warns(UserWarning, match="empty job array"):
        assert executors().map_array(abs, []) == []


@pytest.mark.long
def test_functions_without_arguments(executors: Executors) -> None:
    jobs = executors().submit_array([functools.partial(abs, -1), functools.partial(divmod, 7, 2)])
    assert [job.result() for job in jobs] == [1, (3, 1)]


@pytest.mark.long
def test_a_batch_is_one_run(executors: Executors) -> None:
    executor = executors()
    with executor.batch():
        jobs = [executor.submit(divmod, number, 2) for number in (7, 8)]
        with pytest.raises(AttributeError, match="forbidden"):
            _ = jobs[0].job_id
        with pytest.raises(RuntimeError, match="not allowed"):
            executor.update_parameters(nodes=1)
    assert [job.result() for job in jobs] == [(3, 1), (4, 0)]
    assert jobs[0].run.path == jobs[1].run.path
    assert repr(jobs[0]).startswith("FunctionJob<job_id=local-")


def test_a_batch_that_fails_submits_nothing(executors: Executors) -> None:
    executor = executors()

    def half() -> None:
        with executor.batch():
            executor.submit(abs, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert not executor.folder.exists()


@pytest.mark.long
@trap(10, "the script, for a function too, is what render shows")
def test_what_render_shows_is_what_is_submitted(executors: Executors) -> None:
    executor = executors(ranks_per_node=2, requeue={"max": 1}, env={"A": "b c"})
    job = executor.submit(abs, -1)
    assert job.run.script.read_text() == executor.render(abs)
    assert f'{sys.executable} -u -m submitit.core._submit "$CASTOFF_RUN_DIR"' in executor.render(abs)
    assert job.run.id.startswith("abs-")
    assert job.results() == [1, 1]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (place, "place"),
        (functools.partial(place), "place"),
        (lambda: 1, "function"),
        (Count(), "Count"),
    ],
)
def test_a_job_is_named_after_its_function(function: Callable[[], Any], name: str) -> None:
    script = castoff.executor({}, "slurm", "runs").render(function)
    assert f"#SBATCH --job-name={name}\n" in script
    mine = castoff.executor({"name": "mine"}, "slurm", "runs").render(function)
    assert "#SBATCH --job-name=mine\n" in mine


def test_functions_share_jobs() -> None:
    array = {"together": {"nodes": 2, "per_node": 4}}
    executor = castoff.executor({"cores_per_rank": 2, "array": array}, "slurm", "runs")
    script = executor.render(abs, count=20)
    assert "castoff_together=20 castoff_at_once=8 castoff_job_nodes=2 castoff_per_node=4" in script
    assert "castoff_together" not in executor.render(abs)


def test_an_interpreter_of_the_users_choice() -> None:
    executor = castoff.executor({"python": "/opt/python"}, "slurm", "runs")
    assert "/opt/python -u -m submitit" in executor.render(abs)
    container = {"image": "/images/a.sif", "runtime": "apptainer"}
    assert "\n  python -u -m submitit" in castoff.executor({"container": container}, "slurm", "r").render(abs)


def test_what_is_asked_of_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: [not-run]\nnodes: 2\nrequeue: {max: 0}\n")
    executor = castoff.executor(JobSpec.load(tmp_path / "job.yaml"), Site.load("slurm"), tmp_path)
    assert "#SBATCH --nodes=2\n" in executor.render(Count()) and "not-run" not in executor.render(abs)
    assert "castoff_requeue" not in executor.render(Count())
    executor.update_parameters(walltime="1h")
    assert "#SBATCH --time=01:00:00\n" in executor.render(abs)
    assert "castoff_requeue" not in executor.render(Count())


@pytest.mark.parametrize(
    ("said", "by_site", "most"),
    [
        ({"how": "copy"}, Requeue(), 3),
        ({"how": "copy", "max": 0}, Requeue(), 0),
        ({"how": "copy", "max": 5}, Requeue(), 5),
        ({}, Requeue(how="copy"), 3),
        ({}, Requeue(7, "copy"), 7),
        ({"max": 0}, Requeue(how="copy"), 0),
    ],
)
def test_how_often_a_resumable_function_is_resumed(
    tmp_path: Path, said: dict[str, Any], by_site: Requeue, most: int
) -> None:
    """Three times as in submitit, unless somebody said how often: the way in which it does says nothing."""
    site = msgspec.structs.replace(Site.load("pbs"), defaults=JobSpec(requeue=by_site))
    fields = {"requeue": said} if said else {}
    (tmp_path / "job.yaml").write_text(json.dumps({"command": ["ignored"], **fields}))
    for job in (fields, JobSpec.load(tmp_path / "job.yaml")):
        script = castoff.executor(job, site, tmp_path).render(Count())
        assert re.findall(r"^castoff_requeue_max=(\d+) # ", script, re.MULTILINE) == [str(most)] * bool(most)


# submitit's plugins


def auto(folder: Path, **arguments: Any) -> tuple[submitit.AutoExecutor, PbsExecutor]:
    """An AutoExecutor for PBS, and castoff's own in it."""
    made = submitit.AutoExecutor(folder, cluster="pbs", **arguments)
    assert type(made._executor) is PbsExecutor
    return made, made._executor


@trap(1, "AutoExecutor falls back to the local cluster by itself")
def test_auto_executor_takes_castoff_only_if_asked(tmp_path: Path) -> None:
    from submitit.core import plugins

    assert plugins.get_executors()["pbs"] is PbsExecutor
    assert {"slurm", "local", "debug"} < set(plugins.get_executors())
    assert plugins.get_executors()["slurm"] is submitit.SlurmExecutor
    assert plugins.get_executors()["local"] is submitit.LocalExecutor
    assert submitit.AutoExecutor.which() != "pbs"
    # AutoExecutor takes a bare name for that of the last plugin that lists it: ours must list none.
    plain = submitit.AutoExecutor(tmp_path, cluster="local")
    assert not [new for new in plain._deprecated_args.values() if new.startswith("pbs_")]


@trap("insides", "an entry-point group takes one executor and one job environment")
def test_entry_points() -> None:
    from importlib.metadata import distribution

    found = [one for one in distribution("castoff").entry_points if one.group == "submitit"]
    assert {one.name: one.load().name() for one in found} == {"executor": "pbs", "job_environment": "castoff"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("runs", "local"),
            "spec is 'runs', but takes a JobSpec or fields of a job file, as in {'walltime': '10m'}",
        ),
        (("runs", "local"), "; write folder='runs'"),
        ((Path("/a/runs"), "local"), "; write folder='/a/runs'"),
        (("job.yaml", "local"), "; write JobSpec.load('job.yaml')"),
        ((3, "local"), "spec is 3, but takes a JobSpec"),
        (({}, 3), "site is 3, but takes a Site or a site's name, as in 'slurm'"),
        (({}, "local", 3), "folder is 3, but takes the path of a folder"),
    ],
)
def test_arguments_in_another_order(arguments: tuple[Any, ...], words: str) -> None:
    """As submitit's own executors have them: the folder first."""
    with pytest.raises(CastoffError) as error:
        castoff.executor(*arguments)
    assert words in str(error.value)


def test_parameters_of_auto_executor_reach_pbs(tmp_path: Path) -> None:
    auto_executor, executor = auto(tmp_path, pbs_spec={"queue": "workq", "directives": {"k": "doe"}})
    auto_executor.update_parameters(
        name="mine",
        timeout_min=5,
        mem_gb=2.5,
        nodes=2,
        cpus_per_task=3,
        gpus_per_node=4,
        stderr_to_stdout=True,
        slurm_partition="not here",
        pbs_account="me",
    )
    auto_executor.update_parameters(tasks_per_node=2)
    directives = [line for line in executor.render(abs).splitlines() if line.startswith("#PBS ")]
    assert directives == [
        "#PBS -N mine",
        "#PBS -A me",
        "#PBS -q workq",
        "#PBS -l select=2:ncpus=6:mpiprocs=2:ngpus=4:mem=2560mb",
        "#PBS -l place=scatter",
        "#PBS -l walltime=00:05:00",
        "#PBS -j oe",
        "#PBS -r n",
        "#PBS -k doe",
    ]
    assert executor.spec.devices_per_rank is None  # it follows from both, in whatever order they come
    auto_executor.update_parameters(tasks_per_node=3)
    with pytest.raises(InvalidInput, match="gpus_per_node: is 4, but must be a multiple of the tasks"):
        executor.render(abs)
    auto_executor.update_parameters(pbs_devices_per_rank=2, mem_gb=1, timeout_min=9, pbs_walltime="1h")
    script = executor.render(abs)
    assert "select=2:ncpus=9:mpiprocs=3:ngpus=6:mem=1gb\n" in script and "walltime=01:00:00\n" in script


def test_auto_executors_tasks_are_submitits(tmp_path: Path) -> None:
    """One on each node unless it is said; castoff's own executor has one for each device."""
    _, executor = auto(tmp_path, pbs_site="polaris")
    fields = {"walltime": "10m", "account": "a", "queue": "debug", "directives": {"filesystems": "home"}}
    executor.update_parameters(**fields)
    assert "castoff_ranks_per_node=1 " in executor.render(abs)
    executor.update_parameters(ranks=3)
    assert "castoff_ranks_per_node=3 " in executor.render(abs)
    assert "castoff_ranks_per_node=4 " in castoff.executor(fields, "polaris", tmp_path).render(abs)


@trap(1, "unknown parameters: NameError, ValueError, AssertionError, or silence")
def test_auto_executor_reports_castoffs_errors(tmp_path: Path) -> None:
    auto_executor, executor = auto(tmp_path)
    with pytest.raises(InvalidInput) as error:
        auto_executor.update_parameters(
            nodes=2,
            pbs_partition="x",
            pbs_acount="me",
            pbs_queue=["a"],
            pbs_setup="x",
            pbs_array_parallelism=4,
            pbs_slurm_constraint="x",
            mem_gb=1,
        )
    text = str(error.value)
    assert "partition: there is no such field; here: queue" in text
    assert "array_parallelism: there is no such field; here: array.max_concurrent" in text
    assert "slurm_constraint: there is no such field; here: constraint" in text
    assert "did you mean account?" in text and "queue: is" in text and "setup: is" in text
    assert executor.spec.nodes is None and executor.parameters == {}
    with pytest.raises(InvalidInput, match="tasks_per_node: there is no such field; here: ranks_per_node"):
        auto(tmp_path, pbs_spec={"tasks_per_node": 2})
    with pytest.raises(InvalidInput, match="select: is '2:ncpus=1', but takes resources by their names"):
        auto_executor.update_parameters(pbs_select="2:ncpus=1")


def test_auto_executors_machine_is_one_of_pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert auto(tmp_path)[1].site.name == "pbs"
    assert auto(tmp_path, pbs_site="aurora")[1].site.name == "aurora"
    for chosen, taken in (("polaris", "polaris"), ("perlmutter", "pbs")):
        monkeypatch.setenv("CASTOFF_SITE", chosen)
        assert auto(tmp_path)[1].site.name == taken
    with pytest.raises(InvalidInput, match="site: is frontier, whose scheduler is slurm"):
        auto(tmp_path, pbs_site="frontier")


# Parameters


@trap(1, "unknown parameters: NameError, ValueError, AssertionError, or silence")
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("timeout_min", "walltime"),
        ("slurm_time", "walltime"),
        ("tasks_per_node", "ranks_per_node"),
        ("gpus_per_node", "devices_per_rank"),
        ("mem_gb", "memory"),
        ("cpus_per_task", "cores_per_rank"),
        ("slurm_partition", "queue"),
        ("slurm_array_parallelism", "array.max_concurrent"),
        ("slurm_setup", "here: setup"),
        ("slurm_account", "here: account"),
        ("slurm_use_srun", "without srun only one rank starts"),
        ("slurm_additional_parameters", "here: directives.slurm"),
        ("slurm_max_num_timeout", "requeue.max"),
        ("ranks_per_nodes", "did you mean ranks_per_node?"),
        ("colour", "there are: command, name,"),
    ],
)
def test_names_that_are_not_ours(name: str, instead: str) -> None:
    executor = castoff.executor({"nodes": 2}, "slurm", "runs")
    with pytest.raises(InvalidInput) as error:
        executor.update_parameters(**{name: 1, "nodes": 3})
    assert f"{name}: " in str(error.value) and instead in str(error.value)
    assert executor.spec.nodes == 2 and executor.parameters == {"nodes": 2}
    with pytest.raises(InvalidInput):
        castoff.executor({name: 1}, "slurm", "runs")


@trap(1, "every name of submitit's executors has an answer")
def test_every_parameter_of_submitit_is_a_field_or_has_one_instead() -> None:
    names = {*submitit.AutoExecutor._valid_parameters(), *submitit.SlurmExecutor._valid_parameters()}
    executor = castoff.executor({}, "slurm", "runs")
    for name in sorted({*names, *(f"slurm_{name}" for name in names)}):
        try:
            executor.update_parameters(**{name: None})
        except InvalidInput as error:
            assert "here" in str(error), name  # noqa: PT017


@trap(1, "types by assert")
def test_every_mistake_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        castoff.executor({"nodes": "many", "walltime": "soon", "mem_gb": 3}, "slurm", "runs")
    assert {problem.path for problem in error.value.problems} == {"nodes", "walltime", "mem_gb"}


@trap(2, "a time limit, a wckey, a limit on arrays and an open mode that nobody asked for")
@trap(3, "--x=False, and no way to take a directive away")
def test_directives_are_the_job_files() -> None:
    script = castoff.executor({}, "slurm", "runs").render(abs, count=3)
    assert not [word for word in ("--time", "wckey", "%256", "%3") if word in script]
    assert "#SBATCH --array=0-2\n" in script
    executor = castoff.executor({"directives": {"exclusive": False, "licenses": "a:1"}}, "slurm", "runs")
    assert "#SBATCH --licenses=a:1\n" in executor.render(abs) and "exclusive" not in executor.render(abs)
    executor.update_parameters(directives={"licenses": None})
    assert "licenses" not in executor.render(abs)


# How jobs end


def test_once_a_job_is_done_its_state_is_the_last(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its result is there before its script ends, so two more looks see it run."""
    job = executors().submit(abs, -1)
    assert job.result() == 1
    still = iter(["running", "running"])
    look = RunWatcher._look

    def late(watcher: RunWatcher, paths: list[Path]) -> list[Any]:
        found = look(watcher, paths)
        if (state := next(still, None)) is None:
            return found
        return [
            msgspec.structs.replace(
                one, members=[msgspec.structs.replace(member, state=state) for member in one.members]
            )
            for one in found
        ]

    job.watcher.clear()
    monkeypatch.setattr(RunWatcher, "_look", late)
    assert job.state == "COMPLETED"


@trap(4, "a setup line that fails is ignored, and the function runs")
def test_setup_that_fails(executors: Executors) -> None:
    job = executors(setup=["cd /nowhere/at/all"]).submit(abs, 1)
    with pytest.raises(JobEndedError, match="ended without a result: failed") as error:
        job.result()
    assert "/nowhere/at/all" in str(error.value) and "job-0.log" in str(error.value)
    assert error.value.ending == "failed" and error.value.run.path == job.run.path
    assert job.state == "FAILED" and job.stdout() is None
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


@trap(5, "the other ranks go on when one has failed")
@trap(16, "an error starts a debugger")
def test_the_first_failure_ends_the_job_and_is_reported(executors: Executors) -> None:
    job = executors(ranks_per_node=3).submit(fail, "no such luck", rank=1)
    with pytest.raises(submitit.core.utils.FailedJobError, match="no such luck"):
        job.results()  # the others would never end
    assert job.state == "FAILED" and job.get_info()["Failure"].startswith("rank 1 on ")
    reported = str(job.task(0).exception())
    assert "rank 1 on" in reported and "ValueError: no such luck" in reported
    assert "--kill-on-bad-exit=1 --wait=0" in castoff.executor({}, "slurm", "runs").render(fail)


@pytest.mark.long
@trap(6, "use_srun=False: num_tasks is not what runs")
def test_a_function_that_exits(executors: Executors) -> None:
    job = executors().submit(leave, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("castoff.launcher.executors.function_job._LATE_FILES", 0.1)
        with pytest.raises(JobEndedError, match="the function did not return"):
            job.result()
    assert job.state == "COMPLETED"
    with pytest.raises(JobEndedError) as error:
        executors().submit(leave, 7).result()
    assert str(error.value).count("exit code 7") == 1


@trap(8, "a job that was killed is never done where there is no accounting")
def test_what_was_killed_is_over(executors: Executors, until: Callable[..., None]) -> None:
    job = executors().submit(sleep, 600)
    until(lambda: "sleeps" in (job.stdout() or ""))
    while family := processes_of(job.run):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in family:
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
    until(lambda: job.done(force_check=True))  # what is killed may take a moment to let go of its lock
    job.wait()
    with pytest.raises(JobEndedError, match="ended without a result: unknown"):
        job.result()
    assert job.state == "UNKNOWN"


@trap(17, "cancel")
def test_cancel(executors: Executors, until: Callable[..., None]) -> None:
    jobs = executors().map_array(sleep, [600, 0, 600])
    until(lambda: "sleeps" in (jobs[0].stdout() or ""))
    assert not jobs[0].done() and jobs[0].state in ("PENDING", "RUNNING")
    jobs[0].cancel()
    with pytest.raises(JobEndedError, match=r"function 0 of 3.*: cancelled\n"):
        jobs[0].result()
    assert jobs[0].state == "CANCELLED"
    assert jobs[1].result() == "rested"  # it alone was cancelled
    assert not jobs[2].done(force_check=True)
    jobs[2].cancel_at_deletion()
    run = jobs[2].run
    jobs.clear()  # and so deletes them
    until(lambda: not is_alive(run))


def test_cancel_what_waits(executors: Executors, until: Callable[..., None]) -> None:
    jobs = executors(array={"max_concurrent": 1}).map_array(sleep, [600, 600])
    jobs[1].cancel()
    jobs[1].wait()
    assert jobs[1].state == "CANCELLED" and not jobs[0].done(force_check=True)
    jobs[0].cancel()
    jobs[0].wait()
    jobs[0].cancel()  # it is over already


@trap(14, "whoever can write the folder runs code as the user")
def test_what_others_could_have_written_is_not_unpickled(executors: Executors) -> None:
    job = executors().submit(abs, -1)
    assert job.result() == 1
    for path in (job.run.path, job.paths.submitted_pickle.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    job.run.path.chmod(0o770)
    with pytest.raises(CastoffError, match="others may write to it"):
        job.result()
    with pytest.raises(CastoffError, match="others may write to it"):
        job.submission()
    job.run.path.chmod(0o700)
    give_away(job.run.path)
    with pytest.raises(CastoffError, match="reads nor changes"):
        job.result()


@trap(14, "the rank does not either")
def test_a_rank_believes_no_open_folder(
    executors: Executors, tmp_path: Path, until: Callable[..., None]
) -> None:
    submitted = tmp_path / "submitted"
    waits = f"until [ -e {submitted} ]; do sleep 0.1; done"
    job = executors(setup=[waits, 'chmod g+w "$CASTOFF_RUN_DIR"']).submit(abs, -1)
    submitted.touch()
    until(lambda: (job.run.path / "attempts" / "0.0" / "ending.json").exists())
    job.run.path.chmod(0o700)
    with pytest.raises(JobEndedError, match="others may write to it"):
        job.result()


@pytest.mark.long
def test_a_script_that_is_submitted_by_hand_has_no_function(executors: Executors, castoff: Any) -> None:
    job = executors(setup=['rm -r "$CASTOFF_RUN_DIR/functions"']).submit(abs, -1)
    with pytest.raises(JobEndedError, match="cannot be submitted by hand"):
        job.result()


@trap(15, "what a CommandFunction writes is seen at its end")
def test_output_is_seen_while_it_runs(executors: Executors, until: Callable[..., None]) -> None:
    job = executors().submit(sleep, 600)
    until(lambda: "sleeps" in (job.stdout() or ""))
    assert not job.done()
    job.cancel()
    command = submitit.helpers.CommandFunction(["echo", "hello"])
    assert executors().submit(command).result() == "hello"


@trap(16, "nodes are refused late, CUDA_VISIBLE_DEVICES is emptied")
def test_the_local_site(executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="this machine is one node"):
        executors(nodes=2).submit(abs, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert executors().submit(place).result()["CUDA_VISIBLE_DEVICES"] == "5"


@pytest.mark.long
@trap(17, "asyncio")
def test_awaiting(executors: Executors) -> None:
    async def wait() -> tuple[Any, Any]:
        single = executors().submit(divmod, 7, 2).awaitable()
        several = executors(ranks_per_node=2).submit(divmod, 9, 2).awaitable()
        return await single.result(0.1), await several.results(0.1)

    assert asyncio.run(wait()) == ((3, 1), [(4, 1), (4, 1)])


@pytest.mark.long
def test_as_completed(executors: Executors) -> None:
    jobs = executors().map_array(sleep, [0, 0])
    assert {job.job_id for job in as_completed(jobs, 60, 0.1)} == {job.job_id for job in jobs}


@trap(17, "a job runs the source as it is when it starts")
def test_a_function_of_a_module_runs_in_a_snapshot(executors: Executors, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def version(): return 'then'\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        import mine  # type: ignore[import-not-found]

        snapshot = executors(snapshot={"paths": ["mine.py"]}, setup=["until [ -e go ]; do sleep 0.1; done"])
        job = snapshot.submit(mine.version)
    (tmp_path / "mine.py").write_text("def version(): return 'now'\n")
    (tmp_path / "go").touch()
    assert job.result() == "then"


# Submitting, refused


def stub(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@trap(9, "a refusal is a FailedJobError, and hides the script")
def test_a_refusal(executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "sbatch: error: invalid partition specified: nowhere"
    stub(tmp_path / "bin", "sbatch", f"echo '{words}' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    executor = executors("slurm", queue="nowhere")
    with pytest.raises(utils.FailedSubmissionError) as error:
        executor.submit(abs, 1)
    assert not isinstance(error.value, utils.UncompletedJobError)
    assert isinstance(error.value, SubmissionError) and isinstance(error.value, CastoffError)
    (run,) = executor.folder.iterdir()
    assert words in str(error.value) and f"{run}/job.sh" in str(error.value)


@trap(9, "nobody knows whether it was taken")
def test_an_unclear_answer(executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    stub(tmp_path / "bin", "sbatch", f"echo '{words}' >&2; exit 1")
    stub(tmp_path / "bin", "squeue", "exit 1")
    monkeypatch.setattr("castoff.launcher.submission.send._UNCLEAR_PATIENCE", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    with pytest.raises(
        SubmissionError, match=r"castoff queries the queue before .*`castoff status .*`"
    ) as error:
        executors("slurm").submit(abs, 1)
    assert words in str(error.value)


@trap(12, "MaxArraySize is not looked at")
def test_an_array_in_parts(executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path / "bin", "sbatch", f'echo "$*" >>{tmp_path}/calls; wc -l <{tmp_path}/calls')
    stub(tmp_path / "bin", "scontrol", "echo 'MaxArraySize            = 400'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    jobs = executors("slurm").map_array(abs, range(1000))
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
    assert [jobs[number].job_id for number in (0, 399, 400, 999)] == ["1_0", "1_399", "2_0", "3_199"]
    assert jobs[999].submission().args == (999,)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [jobs[0].run.id]
    assert FunctionJob(jobs[0].run.path, "2_7").member == 407


@trap(12, "the limit on pickles does not count for arrays")
def test_large_arguments(executors: Executors) -> None:
    executor = executors()
    executor.max_pickle_size_gb = 1e-3
    with pytest.raises(RuntimeError, match=r"3 of 4 functions .* nothing was sent"):
        executor.map_array(len, [b"x" * 400_000] * 4)
    with pytest.raises((TypeError, pickle.PicklingError)):
        executor.submit(list, (number for number in range(3)))
    assert list(executor.folder.iterdir()) == []


@trap(13, "the folder must be absolute, and %j in its name is replaced")
def test_an_odd_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    executor = castoff.executor({}, "local", "a %j %A_%a %t folder")
    job = executor.submit(abs, -2)
    assert job.result() == 2
    assert job.run.path.parent == job.paths.folder.parent == tmp_path / "a %j %A_%a %t folder"
    home = castoff.executor({}, "local", "~/here")
    assert home.folder == Path.home() / "here"
    assert castoff.executor({}, "local").folder == tmp_path / "castoff-runs"


@trap("insides", "0.2 s between two submissions")
def test_nothing_of_submitits_own_submission_is_used() -> None:
    assert not issubclass(CastoffExecutor, submitit.core.core.PicklingExecutor)


@pytest.mark.long
def test_results_have_types(executors: Executors) -> None:
    length: int = executors().submit(len, "abc").result()  # mypy checks it
    assert length == 3


@pytest.mark.long
@trap(11, "a job that is submitted inside another takes itself for that")
def test_a_function_that_submits(executors: Executors, tmp_path: Path) -> None:
    def outer() -> tuple[str, str]:
        job = castoff.executor({}, "local", tmp_path / "inner").submit(environment)
        return job.job_id, job.result()["job_id"]

    job = executors().map_array(lambda _: outer(), range(2))[1]
    assert job.result()[0] == job.result()[1]


@pytest.mark.long
@trap(11, "nothing global is changed")
def test_the_environment_stays_as_it_is(executors: Executors) -> None:
    before = dict(os.environ)
    executors().submit(abs, 1).result()
    assert dict(os.environ) == before
    assert type(submitit.Job.watcher) is not type(FunctionJob.watcher)


# Going on


@trap(7, "checkpoint in a signal handler of every rank, and a second requeue counter")
def test_a_checkpointed_function_is_resumed(executors: Executors) -> None:
    executor = executors()
    job = executor.submit(Count())
    assert job.result() == (10, 1, "1")
    assert "saves at 5" in (job.stdout() or "") and "begins at 5" in (job.stdout() or "")
    assert "swallowed" not in (job.stdout() or "")
    settle(job)
    assert job.state == "COMPLETED" and job.paths.attempt == 1
    assert vars(job.submission().function)["step"] == 5
    assert "castoff_requeue_max=3 #" in executor.render(Count())


@pytest.mark.long
def test_of_a_hang_the_stack_is_shown(executors: Executors) -> None:
    job = executors().submit(hang)
    with pytest.raises(JobEndedError, match="ended without a result: failed") as error:
        job.result()
    stack = job.paths.stdout.parent / "stacks" / "rank-00000.txt"
    lines = str(error.value).splitlines()
    assert lines[1] == "rank 0 on n1 hung"
    assert lines[4:6] == [f"from {stack}:", '    File "data.py", line 88 in read_batch']


@pytest.mark.long
def test_an_error_before_a_restart_is_not_the_end(executors: Executors) -> None:
    job = executors(restart={"max": 1}).submit(fail_at_first)
    while not job.done():
        time.sleep(0.005)
    assert (job.run.path / "attempts/0.1/start.json").exists()
    assert (job.result(), job.get_info()["Attempts"]) == ("1", "2")


@trap(7, "the other ranks only log that they were asked")
@trap(10, "RANK and its companions have to be exported before init_process_group()")
@pytest.mark.long  # torch is imported four times
def test_ranks_that_synchronise_resume_together(executors: Executors) -> None:
    job = executors(ranks_per_node=2).submit(Meet(60))
    assert job.results() == [(60, 2.0, "1"), (60, 2.0, "1")]
    assert not (job.run.path / "attempts/0.0/failure.json").exists()


@pytest.mark.long
@trap(7, "three time-outs, whatever the job says")
def test_a_function_ends_when_the_script_stops_resuming_it(executors: Executors) -> None:
    job = executors(requeue={"max": 1}).submit(Endless())
    with pytest.raises(
        JobEndedError, match=r"ended without a result: walltime\n(.*\n)*.*castoff resubmit"
    ) as error:
        job.result()
    assert job.state == "TIMEOUT" and job.get_info()["Attempts"] == "2"
    assert f"castoff resubmit {job.run.id}" in str(error.value) and "logs/0.1" in str(error.value)
    assert vars(job.submission().function)["starts"] == 2


@pytest.mark.long
@trap(7, "checkpoint() that returns None")
def test_a_function_whose_checkpoint_returns_none_fails(executors: Executors) -> None:
    job = executors().submit(NotAgain())
    with pytest.raises(utils.FailedJobError, match=r"checkpoint\(\) returned None"):
        job.result()


def test_a_stopped_job_resumes_after_resubmit(executors: Executors, until: Callable[..., None]) -> None:
    job = executors().submit(Count())
    until(lambda: "begins" in (job.stdout() or ""))
    request_stop(job.run)
    with pytest.raises(JobEndedError, match="ended without a result: resume"):
        job.result()
    assert job.state == "CANCELLED"
    resubmit(job.run)
    job.wait()
    assert job.result() == (10, 1, "1")


@pytest.mark.long
def test_a_failure_is_forgotten_once_it_runs_again(executors: Executors, tmp_path: Path) -> None:
    def once() -> str:
        if not (tmp_path / "there").exists():
            raise FileNotFoundError("there")
        return "well"

    job = executors().submit(once)
    with pytest.raises(utils.FailedJobError, match="there"):
        job.result()
    (tmp_path / "there").touch()
    settle(job)
    resubmit(job.run)
    assert job.result() == "well"


@pytest.mark.long
@trap(7, "a job that was preempted or lost its node is started again, whatever its ranks have written")
def test_the_error_of_an_attempt_that_is_not_the_last_is_none(executors: Executors, tmp_path: Path) -> None:
    def lose_the_node() -> str:
        if os.environ["CASTOFF_ATTEMPT"] == "0":
            # What follows from a lost connection; as the scheduler would, the script starts it again.
            (Path(os.environ["CASTOFF_ATTEMPT_DIR"]) / "requeue").touch()
            raise ConnectionError("lost")
        return "well"

    assert executors(ranks_per_node=1).submit(lose_the_node).result() == "well"


@pytest.mark.long
def test_of_two_errors_the_first_counts(executors: Executors) -> None:
    def both() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the victim says something too
        me = int(os.environ["RANK"])
        begun = Path(os.environ["CASTOFF_ATTEMPT_DIR"]) / "begun"
        if me == 0:
            begun.touch()
        while not (begun if me else Path(os.environ["CASTOFF_FAILURE_FILE"])).exists():
            time.sleep(0.01)
        raise ValueError(f"of rank {me}")

    job = executors(ranks_per_node=2).submit(both)
    with pytest.raises(utils.FailedJobError, match="of rank 1"):
        job.results()
    assert "of rank 1" in str(job.exception()) and "of rank 0" in str(job.task(0).exception())


@pytest.mark.long
def test_a_trainer_that_writes_resume_itself(executors: Executors) -> None:
    def train() -> str:
        if os.environ["CASTOFF_ATTEMPT"] == "0":
            Path(os.environ["CASTOFF_OUTCOME_FILE"]).write_text("resume\n")
            return "half"
        return "whole"

    assert executors(requeue={"max": 1}).submit(train).result() == "whole"


@pytest.mark.long
def test_signals_from_outside_only_make_the_stop_file(executors: Executors, tmp_path: Path) -> None:
    def signalled(number: int) -> tuple[bool, int]:
        os.kill(os.getpid(), number)
        there = Path(os.environ["CASTOFF_STOP_FILE"]).exists()
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        return there, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with warnings.catch_warnings():
        assert executors().submit(signalled, signal.SIGUSR2).result() == (True, -signal.SIGTERM)


class Forks(Checkpointable):
    """Ends a forked child by TERM, as data loaders end their workers."""

    def __init__(self) -> None:
        pass

    def __call__(self) -> tuple[int, bool]:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, Path(os.environ["CASTOFF_STOP_FILE"]).exists()


def test_workers_end_without_stopping_the_job(executors: Executors) -> None:
    assert executors().submit(Forks()).result() == (-signal.SIGTERM, False)


# submitit's contract with plugins


def test_what_submitit_asks_of_a_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As submitit's own tests ask it of every plugin that is installed."""
    here = plugins.get_job_environments()["castoff"]
    assert isinstance(here, JobEnvironment) and not here.activated()
    assert type(here)._requeue is not JobEnvironment._requeue
    executor = plugins.get_executors()["pbs"]
    assert issubclass(executor, submitit.Executor) and executor.affinity() >= -1
    monkeypatch.setenv("CASTOFF_OUTCOME_FILE", str(tmp_path / "outcome"))
    here._requeue(3)
    assert (tmp_path / "outcome").read_text() == "resume\n"


@pytest.mark.long
def test_what_a_job_environment_is_called_in_a_rank(executors: Executors) -> None:
    job = executors().submit(lambda: repr(submitit.JobEnvironment()))
    assert f"job_id={job.job_id}, " in job.result() and "global_rank=0(1)" in job.result()


# One look for all


@trap(8, "a call for each job, and pauses of ten minutes")
def test_one_look_serves_all_jobs(executors: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = RunWatcher()
    monkeypatch.setattr(FunctionJob, "watcher", watcher)
    jobs = executors().map_array(sleep, [0] * 3)
    others = [executors().submit(abs, 1)]
    for job in (*jobs, *others):
        job.wait()
        settle(job)
    calls = watcher.num_calls
    watcher.clear()
    assert [job.state for job in (*jobs, *others)] == ["COMPLETED"] * 4
    assert watcher.num_calls == calls + 1
    assert watcher._delay_s == 60


@pytest.mark.long
def test_one_run_that_cannot_be_read_hides_no_other(
    executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = executors().submit(abs, 1), executors().submit(abs, 2)
    settle(good)
    settle(bad)

    def broken(run: RunDirectory, **options: Any) -> RunRecords:
        if run.path == bad.run.path:
            raise CastoffError("its disk is on fire")
        return RunRecords(run, **options)

    monkeypatch.setattr(watch, "RunRecords", broken)
    monkeypatch.setattr(FunctionJob, "watcher", RunWatcher())
    good._register_in_watcher()
    bad._register_in_watcher()
    assert good.get_info()["State"] == "COMPLETED" and bad.get_info() == {}


def test_what_ranks_load(tmp_path: Path) -> None:
    """submitit loads both plugins in every rank."""
    import subprocess

    code = (
        "import sys\nfrom submitit.core import plugins\nassert 'pbs' in plugins.get_executors()\n"
        "assert 'castoff' in plugins.get_job_environments()\nprint(*sys.modules)"
    )
    reported = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in reported.stdout.split()}
    assert not loaded & {"msgspec", "yaml", "jinja2", "click", "psutil", "rich", "torch"}


@pytest.mark.long
def test_json_of_a_run_is_that_of_any_other(executors: Executors, castoff: Any) -> None:
    job = executors().submit(abs, 1)
    job.wait()
    reported = json.loads(castoff("status", job.run.path, "--json").stdout)
    assert (reported[0] if isinstance(reported, list) else reported)["name"] == "abs"
