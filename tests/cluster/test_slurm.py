"""The cluster itself: a test that trusts it must not pass because of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from .jobs import until
from .slurm import HEAD, NODES, SlurmCluster

CHECKOUT = Path(__file__).parents[2]


def test_hosts_differ_in_name_and_address(slurm: SlurmCluster) -> None:
    told = slurm.run(HEAD, ["srun", "-N4", "sh", "-c", "hostname; ip -o -4 address show eth0"]).stdout
    for node in NODES:
        address = slurm.run(node, ["ip", "-o", "-4", "address", "show", "eth0"]).stdout
        assert address in told and slurm.run(node, ["hostname"]).stdout.strip() == node
    assert len(set(told.splitlines())) == 8


def test_codes_output_and_folder(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = 'pwd; echo "$ODD" >&2; cat; exit 7'
    answer = slurm.run(
        "n2", ["sh", "-c", script], cwd=tmp_path, env={**os.environ, "ODD": "a b"}, input="given"
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (7, f"{tmp_path}\ngiven", "a b\n")
    with pytest.raises(subprocess.TimeoutExpired):
        slurm.run("n2", ["sleep", "77"], timeout=0.5)
    assert "77" not in slurm.run(HEAD, ["ps", "-eo", "args"]).stdout.split()


def test_a_node_that_is_gone_comes_back(slurm: SlurmCluster) -> None:
    ping = ["bash", "-c", "timeout 2 bash -c ': <>/dev/tcp/n4/6818'"]
    assert slurm.run(HEAD, ping).returncode == 0
    slurm.down("n4")
    assert slurm.run(HEAD, ping).returncode != 0
    slurm.kill_slurmd("n3")
    assert slurm.run(HEAD, ["scontrol", "ping"]).returncode == 0
    slurm.resume()
    assert slurm.run(HEAD, ping).returncode == 0
    told = slurm.run(HEAD, ["srun", "-N2", "-w", "n[3-4]", "hostname"]).stdout
    assert sorted(told.split()) == ["n3", "n4"]


@pytest.fixture
def another(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A second cluster, in a process of its own, with a job on all of its nodes."""
    job = f"srun -N4 sh -c 'touch {tmp_path}/$SLURM_PROCID; exec sleep 600'"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.slurm", "bash", "-c", job],
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_it_ends_with_a_process_that_is_killed(
    slurm: SlurmCluster, another: subprocess.Popen[str], tmp_path: Path
) -> None:
    until(lambda: len(list(tmp_path.glob("[0-3]"))) == 4, "four tasks")
    family = psutil.Process(another.pid).children(recursive=True)
    assert {"slurmctld", "slurmd", "mariadbd", "sleep"} <= {process.name() for process in family}
    assert "sh" not in slurm.run(HEAD, ["squeue", "--noheader", "--format=%j"]).stdout.split()
    another.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == [] and len(gone) == len(family)


def test_an_interrupt_ends_it_in_order(another: subprocess.Popen[str], tmp_path: Path) -> None:
    until(lambda: len(list(tmp_path.glob("[0-3]"))) == 4, "four tasks")
    family = psutil.Process(another.pid).children(recursive=True)
    another.send_signal(signal.SIGINT)
    another.communicate(timeout=20)
    assert another.returncode != 0
    assert list(tmp_path.glob("castoff-slurm-*")) == []
    assert psutil.wait_procs(family, timeout=10)[1] == []
