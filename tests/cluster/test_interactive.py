"""castoff shell and castoff alloc on a real Slurm."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.desk import Desk
from tests.patience import until

from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

WAITS = "touch here.$RANK.$CASTOFF_ARRAY_INDEX; until [ -e go ]; do sleep 0.1; done"


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


def test_a_command_beside_a_rank(desk: Desk) -> None:
    """On its host, with its environment, in a step that shares what the job has; its code is ours."""
    run = desk.submit("--nodes", "2", "--ranks-per-node", "2", "--set", "env={MINE: it's}", sh=WAITS)
    until(lambda: len(list(desk.folder.glob("here.*"))) == 4)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    says = ["sh", "-c", 'echo "$RANK $LOCAL_RANK $MINE $(hostname) $PWD"; exit 6']
    for rank, host in ((0, hosts[0]), (3, hosts[1])):
        answer = desk.castoff("shell", run.id, "--rank", str(rank), "--", *says)
        expected = f"{rank} {rank % 2} it's {host} {desk.folder}\n"
        assert (answer.code, answer.output) == (6, expected), answer.errors
    answer = desk.castoff("shell", run.id, "--host", hosts[1], "--", "hostname")
    assert answer.output == f"{hosts[1]}\n"
    assert desk.status(run)["state"] == "running"  # as if nothing had been
    answer = desk.castoff("shell", run.id, "--host", "n9", "--", "true")
    assert answer.errors.endswith(f"n9 is not one of its hosts: {', '.join(hosts)}\n")
    (desk.folder / "go").touch()
    assert desk.until(run, state="ended")["ending"] == "done"
    answer = desk.castoff("shell", run.id, "--", "true")
    assert answer.code == 1 and "it is over (done)" in answer.errors


STUCK = """
import os, threading, time
def in_c():
    time.sleep(600)
def in_a_lock():
    lock = threading.Lock()
    with lock:
        open("here", "w").close()
        lock.acquire()
in_a_lock() if os.environ["RANK"] == "2" else in_c()
"""


def test_the_stacks_of_a_run_that_hangs(desk: Desk) -> None:
    """From the head node, by a step on each host; the run continues."""
    (desk.folder / "stuck.py").write_text(STUCK)
    run = desk.submit("--nodes", "2", "--ranks-per-node", "2", command=[sys.executable, "-S", "stuck.py"])
    until((desk.folder / "here").exists)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    until(lambda: desk.castoff("stacks", run.id).output.count(" in_c (") == 1)
    answer = desk.castoff("stacks", run.id)
    assert (answer.code, answer.errors) == (0, "")
    summary, _, odd, *lines = answer.output.splitlines()
    assert summary.startswith(f"{run.id}: 4 ranks on 2 hosts at ")
    assert odd.startswith(f"rank 2 on {hosts[1]}, process ") and lines[0].startswith("    in_a_lock (")
    assert f"ranks 0, 1, 3 on {', '.join(hosts)}" in answer.output
    answer = desk.castoff("stacks", run.id, "--rank", "2")
    assert answer.output.startswith(f"{run.id}: 1 rank on 1 host at ")
    away = f'case "$*" in *--nodelist={hosts[0]}*) echo gone >&2; exit 1 ;; esac\nexec /usr/bin/srun "$@"\n'
    closed = desk.program("srun", away)
    answer = desk.castoff("stacks", run.id, env=closed)
    assert answer.code == 0 and answer.output.startswith(f"{run.id}: 2 ranks on 1 host at ")
    assert answer.errors == f"castoff: {hosts[0]}: no answer: srun exited with code 1: gone\n"
    assert desk.status(run)["state"] == "running"
    desk.castoff("cancel", run.id)
    desk.until(run, state="ended")


def test_beside_a_member_and_one_that_waits(desk: Desk) -> None:
    """Slurm has an id of its own for each member."""
    run = desk.submit("--set", "array={count: 2, max_concurrent: 1}", sh=WAITS)
    until((desk.folder / "here.0.0").exists)
    says = ["sh", "-c", "echo $CASTOFF_ARRAY_INDEX"]
    assert desk.castoff("shell", run.id, "--", *says).output == "0\n"
    answer = desk.castoff("shell", run.id, "--member", "1", "--", *says)
    assert answer.code == 1 and f"{run.id}, member 1: it is waiting (" in answer.errors, answer.errors
    (desk.folder / "go").touch()
    desk.until(run, state="ended")


def test_where_only_srun_knows_the_ranks_host(desk: Desk) -> None:
    """Then the user names it."""
    words = ["--nodes", "2", "--ranks-per-node", "2", "--set", "launcher.args=['--distribution=cyclic']"]
    run = desk.submit(*words, sh=WAITS)
    until(lambda: len(list(desk.folder.glob("here.*"))) == 4)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    says = ["sh", "-c", "echo $RANK on $SLURMD_NODENAME"]
    answer = desk.castoff("shell", run.id, "--rank", "1", "--", *says)
    assert answer.code == 1
    assert (
        f"(its own --distribution decides that): name the host, too, as in --rank 1 --host {hosts[1]}; "
        in (answer.errors)
    )
    answer = desk.castoff("shell", run.id, "--rank", "1", "--host", hosts[1], "--", *says)
    assert answer.output == f"1 on {hosts[1]}\n", answer.errors
    (desk.folder / "go").touch()
    desk.until(run, state="ended")


def test_beside_what_was_launched_in_an_allocation(desk: Desk) -> None:
    """From the head node, where the allocation is not."""
    launch = ["castoff", "launch", "--ranks-per-node", "1", "--", "sh", "-c", WAITS]
    process = desk.start("castoff", "alloc", "--site", "slurm", "--nodes", "2", "--", *launch)
    until(lambda: len(list(desk.folder.glob("here.*"))) == 2)
    answer = desk.castoff("shell", "sh", "--rank", "1", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert answer.output == "1 of 2\n", answer.errors
    (desk.folder / "go").touch()
    assert desk.end(process).code == 0


def test_an_allocation_for_a_job(desk: Desk) -> None:
    """A command on its first host, whose launches have all hosts; its code is ours."""
    job = desk.folder / "job.yaml"
    job.write_text(
        "name: both\nnodes: 2\nranks_per_node: 2\nsetup: [export FROM_SETUP=yes]\n"
        "command: [sh, -c, 'touch rank.$RANK.$FROM_SETUP']\narray: {count: 3}\n"
    )
    inner = 'hostname >first; echo "$SLURM_JOB_NODELIST" >list; castoff launch job.yaml && exit 9'
    answer = desk.castoff("alloc", job, "--site", "slurm", "--", "sh", "-c", inner)
    assert answer.code == 9, answer.errors
    assert sorted(path.name for path in desk.folder.glob("rank.*")) == [
        f"rank.{rank}.yes" for rank in range(4)
    ]
    hosts = desk.slurm("scontrol", "show", "hostnames", (desk.folder / "list").read_text().strip()).split()
    assert len(hosts) == 2 and (desk.folder / "first").read_text().strip() == hosts[0]
    assert not list(desk.folder.glob("castoff-runs/.alloc-*"))


def test_a_full_cluster_and_ctrl_c(desk: Desk, slurm: SlurmCluster) -> None:
    """The request is withdrawn, and castoff says so."""
    full = desk.submit("--nodes", "4", "--set", "exclusive=true", sh=WAITS)
    desk.until(full, state="running")
    words = ["alloc", "--site", "slurm", "--nodes", "4", "--set", "exclusive=true", "--name", "waits"]
    process = desk.start("castoff", *words, "--", "true")
    until(lambda: "PENDING" in desk.slurm("squeue", "--noheader", "--name=waits", "--format=%T"))
    castoff = slurm.hosts.inside(process)
    for one in [castoff, *psutil.Process(castoff.pid).children()]:  # all of the terminal's foreground
        one.send_signal(signal.SIGINT)
    answer = desk.end(process)
    assert answer.code == 130, answer.errors
    assert "castoff: the request was withdrawn: Slurm gave no hosts\n" in answer.errors
    assert desk.slurm("squeue", "--noheader", "--name=waits") == ""
    (desk.folder / "go").touch()
    desk.until(full, state="ended")


def test_an_allocation_is_refused_in_slurms_words(desk: Desk) -> None:
    answer = desk.castoff("alloc", "--site", "slurm", "--queue", "none-such", "--", "true")
    assert answer.code == 1
    assert "invalid partition specified: none-such" in answer.errors
    assert answer.errors.endswith("castoff: Slurm gave no hosts; its message is above\n")
