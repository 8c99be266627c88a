"""castoff launch inside allocations of a real Slurm, and over several hosts by a real mpiexec."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.watch import status
from tests import patience
from tests.launcher.scripts.harness import PROBE, STALE, marked
from tests.patience import until
from tests.records import submission_of

from .slurm import HEAD, SlurmCluster

pytestmark = pytest.mark.costly

FOR_EVER = "touch ready-$RANK; while :; do sleep 0.1; done"
SAVING = f"trap 'sleep 1; echo done >$CASTOFF_OUTCOME_FILE; exit 0' TERM; {FOR_EVER}"
STUBBORN = f"trap '' TERM INT HUP; {FOR_EVER}"
STOPPING = (
    "until [ -e $CASTOFF_STOP_FILE ]; do sleep 0.1; done; echo $((CASTOFF_DEADLINE - $(date +%s))) s left"
)


class Shell:
    """A user's shell on the cluster, in a folder of its own."""

    def __init__(self, cluster: SlurmCluster, folder: Path):
        self.cluster, self.folder, self.seen = cluster, folder, folder / "seen"
        self.seen.mkdir()
        self.mark = uuid.uuid4().hex

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, host: str = HEAD, **options: Any
    ) -> subprocess.Popen[str]:
        reported = {"PROBE_FOLDER": str(self.seen), "HARNESS_MARK": self.mark}
        person = {"SHELL": "/bin/bash", "TERM": "dumb", "USER": "root"}  # which no login set, as in CI
        environ = {**person, **os.environ, **reported, **(env or {})}
        return self.cluster.popen(host, words, cwd=self.folder, env=environ, **options)

    def run(self, *words: str, env: Mapping[str, str] | None = None, host: str = HEAD) -> Ended:
        """Run a command to its end; nothing of it may be left, on any host."""
        return self.end(self.start(*words, env=env, host=host))

    def end(self, process: subprocess.Popen[str]) -> Ended:
        with process:
            try:
                output, errors = process.communicate(timeout=patience.SECONDS)
            except BaseException:
                for one in marked(self.mark):
                    one.kill()
                raise
        until(lambda: not list(marked(self.mark)), f"nothing is left: {list(marked(self.mark))}")
        return Ended(process.returncode, output, errors)

    def runs(self) -> list[RunStatus]:
        """What became of the runs here, oldest first."""
        runs = [RunDirectory(path) for path in (self.folder / "castoff-runs").iterdir()]
        return [status(run) for run in sorted(runs, key=lambda run: submission_of(run).time or 0)]

    def ranks(self) -> list[dict[str, Any]]:
        """What each rank of the last run saw, by rank."""
        files = {int(path.stem[5:]): path for path in self.seen.glob("rank-*.json")}
        return [json.loads(files[rank].read_text()) for rank in sorted(files)]

    def castoff(self, process: subprocess.Popen[str]) -> psutil.Process:
        """The `castoff launch` that a command has started."""
        family = psutil.Process(process.pid).children(recursive=True)
        return next(one for one in family if "launch" in one.cmdline()[:3])

    def wait_for_ranks(self, count: int) -> None:
        until(lambda: len(list(self.folder.glob("ready-*"))) == count, f"{count} ranks")


class Ended(NamedTuple):
    """A command that is over."""

    code: int
    output: str
    errors: str


@pytest.fixture
def shell(slurm: SlurmCluster, tmp_path: Path) -> Shell:
    return Shell(slurm, tmp_path)


def placed(rank: dict[str, Any]) -> tuple[Any, ...]:
    detected = rank["detected"]
    fields = ("rank", "local_rank", "node_rank", "world_size", "launcher")
    return (*(detected[field] for field in fields), rank["environ"]["SLURMD_NODENAME"])


def test_ranks_start_on_all_hosts(shell: Shell) -> None:
    ended = shell.run(
        "salloc", "-N2", "-n4", "--ntasks-per-node=2", "castoff", "launch", "-n", "4", "--", *PROBE, env=STALE
    )
    assert ended.code == 0, ended.errors
    ranks = shell.ranks()
    first, second = ranks[0]["environ"]["SLURMD_NODENAME"], ranks[3]["environ"]["SLURMD_NODENAME"]
    assert first != second
    assert [placed(rank) for rank in ranks] == [
        (rank, rank % 2, rank // 2, 4, "srun", (first, second)[rank // 2]) for rank in range(4)
    ]
    assert {rank["environ"]["MASTER_ADDR"] for rank in ranks} == {first}
    assert {rank["cwd"] for rank in ranks} == {str(shell.folder)}
    (run,) = shell.runs()
    assert (run.site, run.ending, run.code) == ("slurm", "done", 0)
    assert (
        f"castoff: Slurm job {run.job} (2 hosts: {first}, {second}): "
        "4 ranks, 2 on each of 2 nodes, started by srun\n" in ended.errors
    )
    listed = shell.run("castoff", "list", "--json")
    assert [json.loads(line)["id"] for line in listed.output.splitlines()] == [run.id]


@pytest.mark.parametrize(("asked", "ranks"), [([], 1), (["--gres=gpu:2"], 2), (["--gpus=3"], 3)])
def test_as_many_ranks_as_the_allocation_has_devices(asked: list[str], ranks: int, shell: Shell) -> None:
    """Of the four that each node of the site has."""
    node = "{devices: [4], device_variable: CUDA_VISIBLE_DEVICES, source: x, date: 2026-11-28}"
    site = shell.folder / ".castoff" / "sites" / "gpus.yaml"
    site.parent.mkdir(parents=True)
    site.write_text(f"extends: slurm\ndescription: x\nnode: {node}\n")
    launch = ["castoff", "launch", "--site", "gpus", "--", "sh", "-c", "echo $WORLD_SIZE"]
    ended = shell.run("salloc", "-N1", "-c4", *asked, *launch)
    assert (ended.code, ended.output) == (0, f"{ranks}\n"), ended.errors


def test_several_runs_in_one_allocation(shell: Shell) -> None:
    """Fewer hosts, too many, a rank that fails: each answer, and each code, one after the other."""
    failing = (
        "echo rank $RANK; touch said-$RANK; [ $RANK = 2 ] || exec sleep 600; "
        "until [ -e said-0 ]; do sleep 0.1; done; exit 9"
    )
    script = f"""
castoff launch -n 4 -N 2 sh -c 'hostname; echo $SLURM_STEP_NODELIST'; echo code $?
castoff launch --nodes 4 -- true; echo code $?
castoff launch -- sh -c '{failing}'; echo code $?
castoff launch -n 9 true; echo code $?
castoff logs sh
"""
    ended = shell.run("salloc", "-N3", "-w", "n[2-4]", "--ntasks-per-node=2", "bash", "-c", script)
    assert ended.output.startswith("n2\nn[2-3]\ncode 0\ncode 2\nrank 0\n"), ended.output + ended.errors
    assert (
        "\ncode 9\ncode 2\n--- rank 2 on n4 failed first: exit code 9 ---\nrank 2\n--- all ranks ---\n"
        in ended.output
    )
    assert "castoff: --nodes: is 4, but Slurm job" in ended.errors
    assert "3 ranks on a host need 3 CPUs, but Slurm job" in ended.errors
    first, second = shell.runs()
    assert [(run.ending, run.code) for run in (first, second)] == [("done", 0), ("failed", 9)]
    assert len(list((Path(first.directory) / "logs" / "0.0").glob("*.log"))) == 4


def test_a_job_file(shell: Shell) -> None:
    """Its setup runs; what was asked of a queue, an array or a requeue is not asked again."""
    (shell.folder / "sites.sh").write_text("export FROM_SETUP=yes\n")
    (shell.folder / "work").mkdir()
    (shell.folder / "job.yaml").write_text(
        f"""
name: filed
command: [sh, -c, 'echo $FROM_SETUP $MINE $A_SECRET $OMP_NUM_THREADS $(pwd) $CASTOFF_ARRAY_COUNT']
ranks: 3
setup: [. ./sites.sh]
env: {{MINE: it's mine}}
env_from: [A_SECRET]
workdir: {shell.folder}/work
account: nobody
queue: none-such
nodes: 2
array: {{count: 4}}
requeue: {{max: 2}}
"""
    )
    words = [
        "salloc",
        "-N2",
        "--ntasks-per-node=2",
        "-c",
        "2",
        "castoff",
        "launch",
        "job.yaml",
        "--runs-dir",
        "there",
    ]
    ended = shell.run(*words, env={"A_SECRET": "s3cret", "SLURM_RESTART_COUNT": "2", "CASTOFF_ATTEMPT": "4"})
    assert ended.code == 0, ended.errors
    assert ended.output == f"yes it's mine s3cret 2 {shell.folder}/work 1\n"
    left_out = "castoff: launch ignores account, queue, array, requeue, which only castoff submit uses\n"
    assert left_out in ended.errors
    (run,) = (shell.folder / "there").glob("filed-*")
    assert {path.name for path in run.iterdir()} >= {"job.yaml", "plan.json", "job.sh", "submission.json"}
    assert "s3cret" not in (run / "job.sh").read_text()
    assert len(list((run / "logs" / "0.0").glob("*.log"))) == 3


def test_in_the_shell_of_salloc(shell: Shell) -> None:
    """An interactive step, on the first host, in a terminal."""
    typed = "castoff launch -n 4 sh -c 'hostname; sleep 0.1; echo $SLURM_STEP_NODELIST'; echo code $?; exit\n"
    process = shell.start(
        "script", "-qec", "salloc -N2 --ntasks-per-node=2", "/dev/null", stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(typed)
    process.stdin.flush()
    ended = shell.end(process)
    (run,) = shell.runs()
    hosts = (Path(run.directory) / "attempts" / "0.0" / "hosts").read_text().split()
    assert run.members[0].attempts[0].host == hosts[0]
    assert f"\n{hosts[0]}\nn[{hosts[0][1:]}-{hosts[1][1:]}]\ncode 0\n" in ended.output.replace("\r", "")


def test_in_a_step_that_holds_the_cores(shell: Shell) -> None:
    """As `srun --pty bash` does: without --overlap an srun in it would wait for ever."""
    ended = shell.run("srun", "-N1", "-c", "4", "castoff", "launch", "-n", "2", "--", *PROBE)
    assert ended.code == 0, ended.errors
    assert [placed(rank)[:5] for rank in shell.ranks()] == [(0, 0, 0, 2, "srun"), (1, 1, 0, 2, "srun")]
    assert {rank["environ"]["OMP_NUM_THREADS"] for rank in shell.ranks()} == {"2"}


@pytest.mark.parametrize(
    ("launcher", "package", "args"),
    [("hydra", "mpich", "[]"), ("openmpi", "openmpi-bin", "[--allow-run-as-root]")],
)
def test_an_mpiexec_instead_of_srun(
    launcher: str, package: str, args: str, shell: Shell, system_program: Callable[[str, str], Path]
) -> None:
    program = system_program(f"mpiexec.{package.partition('-')[0]}", package)
    profile = shell.folder / ".castoff" / "sites" / "slurm.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(
        f"description: ours\nextends: slurm\nlauncher: {launcher}\nmpiexec: {program}\n"
        f"launcher_args: {args}\n"
    )
    allocated = ["salloc", "-N3", "--ntasks-per-node=2"]
    ended = shell.run(*allocated, "castoff", "launch", "--nodes", "2", "-n", "4", "--", *PROBE)
    assert ended.code == 0, ended.errors
    ranks = shell.ranks()
    assert [rank["detected"]["node_rank"] for rank in ranks] == [0, 0, 1, 1]
    assert {rank["detected"]["launcher"] for rank in ranks} == {launcher}


def test_a_rank_starts_ranks_on_its_own_host_alone(shell: Shell) -> None:
    ended = shell.run("srun", "-N2", "castoff", "launch", "--", "true")
    assert ended.code == 1
    assert "castoff: this process is rank 1 of 2 already, started by srun, " in ended.errors
    ended = shell.run(
        "srun", "-N2", "castoff", "launch", "--here", "-n", "2", "--", "sh", "-c", "echo $(hostname)"
    )
    assert ended.code == 0, ended.errors
    lines = [line.partition("] ")[2] for line in ended.output.splitlines()]
    assert len(lines) == 4 and len({*lines}) == 2


def test_in_a_batch_script_and_the_local_scheduler_beside_it(shell: Shell) -> None:
    (shell.folder / "batch.sh").write_text(
        "#!/bin/bash\nwho='echo $RANK of $WORLD_SIZE by $CASTOFF_LAUNCHER'\n"
        'castoff launch -- sh -c "$who"\n'
        'castoff submit --site local --ranks-per-node 2 --name near -- sh -c "$who"\n'
        "castoff wait near\ncastoff logs near\ntouch over\n"
    )
    answer = shell.run("sbatch", "-N2", "-o", "out", "batch.sh")
    assert answer.code == 0, answer.errors
    until((shell.folder / "over").exists, "the batch script's end")
    output = (shell.folder / "out").read_text()
    assert "\n0 of 2 by srun\n" in output, output
    assert "[1] 1 of 2 by local\n" in output


def test_an_interrupt_lets_the_ranks_save(shell: Shell) -> None:
    process = shell.start("salloc", "-N2", "castoff", "launch", "--", "sh", "-c", SAVING)
    shell.wait_for_ranks(2)
    shell.castoff(process).send_signal(signal.SIGINT)
    ended = shell.end(process)
    assert (ended.code, shell.runs()[0].ending) == (0, "done"), ended.errors
    assert "castoff: SIGINT: asked the ranks to stop (SIGTERM); a second one kills them\n" in ended.errors


def test_an_interrupted_program_that_can_be_resumed(shell: Shell) -> None:
    """Its code tells that it is not done."""
    program = SAVING.replace("echo done", "echo resume")
    process = shell.start("salloc", "-N2", "castoff", "launch", "--", "sh", "-c", program)
    shell.wait_for_ranks(2)
    shell.castoff(process).send_signal(signal.SIGINT)
    ended = shell.end(process)
    assert (ended.code, shell.runs()[0].ending) == (75, "cancelled"), ended.errors


def test_a_second_interrupt_kills(shell: Shell) -> None:
    """At a terminal, where salloc hears them too."""
    (shell.folder / "stubborn.sh").write_text(STUBBORN)
    words = ["script", "-qec", "salloc -N2 castoff launch -- sh stubborn.sh", "/dev/null"]
    process = shell.start(*words, stdin=subprocess.PIPE)
    assert process.stdin is not None
    shell.wait_for_ranks(2)
    process.stdin.write("\x03")
    process.stdin.flush()
    until(lambda: list(shell.folder.glob("castoff-runs/*/attempts/0.0/terminated")), "the ranks were asked")
    while process.poll() is None:  # what comes soon may count as an echo of the first
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\x03")
            process.stdin.flush()
        time.sleep(0.3)
    ended = shell.end(process)
    assert ended.code == 130, ended.output
    assert shell.runs()[0].ending == "cancelled"


def test_nothing_outlives_a_castoff_that_is_killed(shell: Shell) -> None:
    process = shell.start("salloc", "-N2", "castoff", "launch", "--", "sh", "-c", STUBBORN)
    shell.wait_for_ranks(2)
    shell.castoff(process).kill()
    shell.end(process)
    assert shell.runs()[0].over  # cancelled, or unknown if its script was killed, too


def test_castoff_cancel_ends_it(shell: Shell) -> None:
    program = "touch ready-$RANK; exec sleep 600"
    process = shell.start("salloc", "-N2", "castoff", "launch", "--", "sh", "-c", program)
    shell.wait_for_ranks(2)
    (run,) = shell.runs()
    assert run.state == "running"
    answer = shell.cluster.run(HEAD, ["castoff", "cancel", run.directory], cwd=shell.folder)
    assert answer.returncode == 0, answer.stderr
    ended = shell.end(process)
    assert (ended.code, shell.runs()[0].ending) == (143, "cancelled"), ended.errors


def test_it_is_asked_to_stop_before_the_allocation_ends(shell: Shell) -> None:
    launch = ["salloc", "-N1", "-t", "10", "castoff", "launch"]
    ended = shell.run(*launch, "--set", "grace=590s", "--", "sh", "-c", STOPPING)
    assert ended.code == 0, ended.errors
    assert 0 < int(ended.output.split()[0]) <= 590
    ended = shell.run(*launch, "--set", "grace=20m", "--", "sh", "-c", STOPPING)
    assert ended.code == 0, ended.errors
    assert " s are left here, but grace is 1200 s, so the program is asked to stop at once; " in ended.errors


def test_an_allocation_that_is_gone(shell: Shell) -> None:
    ended = shell.run(
        "castoff", "launch", "--", "true", env={"SLURM_JOB_ID": "7777777", "SLURM_JOB_NODELIST": "n1"}
    )
    assert ended.code == 1
    assert (
        "srun: error: Unable to confirm allocation for job 7777777: Invalid job id specified" in ended.errors
    )


@pytest.mark.parametrize("ranks", [3, 4])
def test_qsub_with_a_real_mpiexec_on_two_hosts(
    ranks: int, shell: Shell, system_program: Callable[[str, str], Path]
) -> None:
    """PBS's own variables on hosts without PBS; MPICH's mpiexec reaches the other host as it would by ssh."""
    profile = shell.folder / ".castoff" / "sites" / "ours.yaml"
    profile.parent.mkdir(parents=True)
    remote = shell.cluster.hosts.remote_shell(shell.folder / "ssh")
    profile.write_text(
        f"description: ours\nextends: pbs\nmpiexec: {system_program('mpiexec.mpich', 'mpich')}\n"
        f"launcher_args: [-launcher, ssh, -launcher-exec, {remote}]\n"
    )
    (shell.folder / "nodes").write_text("n1\nn1\nn2\nn2\nn3\n")
    reported = {"PBS_JOBID": "7.head", "PBS_NODEFILE": str(shell.folder / "nodes"), "PBS_O_WORKDIR": "/"}
    words = ["castoff", "launch", "--site", "ours", "--nodes", "2", "--ranks", str(ranks), "--", *PROBE]
    ended = shell.run(*words, host="n1", env={**STALE, **reported})
    assert ended.code == 0, ended.errors
    seen = shell.ranks()
    assert [rank["detected"]["launcher"] for rank in seen] == ["hydra"] * ranks
    assert [rank["detected"]["node_rank"] for rank in seen] == [0, 0, 1, 1][:ranks]
    assert {rank["environ"]["MASTER_ADDR"] for rank in seen} == {"n1"}
    assert {rank["cwd"] for rank in seen} == {str(shell.folder)}
    assert "castoff: PBS job 7.head (3 hosts: n1, n2, n3): " in ended.errors
