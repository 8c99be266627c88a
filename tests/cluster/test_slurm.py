"""The cluster itself: a test that trusts it must not pass because of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import patience
from tests.patience import until

from .hosts import memory_groups
from .slurm import HEAD, MAX_ARRAY_SIZE, NODES, SlurmCluster

pytestmark = pytest.mark.costly

CHECKOUT = Path(__file__).parents[2]


def test_hosts_differ_in_name_and_address(slurm: SlurmCluster) -> None:
    reported = slurm.run(HEAD, ["srun", "-N4", "sh", "-c", "hostname; ip -o -4 address show eth0"]).stdout
    for node in NODES:
        address = slurm.run(node, ["ip", "-o", "-4", "address", "show", "eth0"]).stdout
        assert address in reported and slurm.run(node, ["hostname"]).stdout.strip() == node
    assert len(set(reported.splitlines())) == 8


def test_codes_output_and_folder(slurm: SlurmCluster, tmp_path: Path) -> None:
    script = 'pwd; echo "$ODD" >&2; cat; exit 7'
    answer = slurm.run(
        "n2", ["sh", "-c", script], cwd=tmp_path, env={**os.environ, "ODD": "a b"}, input="given"
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (7, f"{tmp_path}\ngiven", "a b\n")
    with pytest.raises(subprocess.TimeoutExpired):
        slurm.run("n2", ["sleep", "77"], timeout=0.5)
    # It is killed, but may still be there for a moment.
    until(lambda: "77" not in slurm.run(HEAD, ["ps", "-eo", "args"]).stdout.split(), "the end of sleep")


def test_a_node_that_is_gone_comes_back(slurm: SlurmCluster) -> None:
    ping = ["bash", "-c", "timeout 2 bash -c ': <>/dev/tcp/n4/6818'"]
    assert slurm.run(HEAD, ping).returncode == 0
    slurm.down("n4")
    assert slurm.run(HEAD, ping).returncode != 0
    slurm.kill_slurmd("n3")
    assert slurm.run(HEAD, ["scontrol", "ping"]).returncode == 0
    slurm.resume()
    assert slurm.run(HEAD, ping).returncode == 0
    reported = slurm.run(HEAD, ["srun", "-N2", "-w", "n[3-4]", "hostname"]).stdout
    assert sorted(reported.split()) == ["n3", "n4"]


def test_a_drained_node_gets_no_jobs(slurm: SlurmCluster) -> None:
    there = ["srun", "--immediate=1", "-w", "n2", "hostname"]
    slurm.drain("n2")
    assert slurm.run(HEAD, there).returncode != 0
    slurm.resume()
    assert slurm.run(HEAD, there).stdout == "n2\n"


def submitted(slurm: SlurmCluster, folder: Path, *words: str) -> str:
    answer = slurm.run(HEAD, ["sbatch", "--parsable", *words], cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def state(slurm: SlurmCluster, job: str) -> str:
    shown = slurm.run(HEAD, ["scontrol", "--oneliner", "show", "job", job]).stdout
    return next(word.partition("=")[2] for word in shown.split() if word.startswith("JobState="))


def test_a_node_that_fails_takes_its_job_with_it(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submitted(slurm, tmp_path, "-w", "n3", "--no-requeue", "--wrap", "touch ready; sleep 600")
    until((tmp_path / "ready").exists, "the job")
    slurm.set_down("n3")
    until(lambda: state(slurm, job) == "NODE_FAIL", "NODE_FAIL")
    slurm.resume()


def test_a_controller_that_does_not_answer(slurm: SlurmCluster) -> None:
    slurm.stop_controller()
    with slurm.popen(HEAD, ["squeue"]) as asking:
        with pytest.raises(subprocess.TimeoutExpired):
            asking.wait(1)
        slurm.continue_controller()
        assert asking.wait(patience.SECONDS) == 0


def test_accounting_can_be_stopped_and_started(slurm: SlurmCluster) -> None:
    with slurm.without_accounting():
        assert slurm.run(HEAD, ["sacct"]).returncode != 0
        assert slurm.run(HEAD, ["srun", "hostname"]).returncode == 0
    with contextlib.ExitStack() as stack:
        with slurm.slow_accounting():
            asking = stack.enter_context(slurm.popen(HEAD, ["sacct"]))
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(1)
        assert asking.wait(patience.SECONDS) == 0


def test_memory_is_limited(slurm: SlurmCluster, tmp_path: Path) -> None:
    if not slurm.limits_memory:
        pytest.skip("no control groups that could limit memory")
    program = f"{sys.executable} -c 'bytearray(300_000_000).count(1)'"
    enough, little = (submitted(slurm, tmp_path, f"--mem={size}", "--wrap", program) for size in (600, 100))
    until(lambda: state(slurm, little) == "OUT_OF_MEMORY", "OUT_OF_MEMORY")
    until(lambda: state(slurm, enough) == "COMPLETED", "COMPLETED")


def test_an_array_has_an_end(slurm: SlurmCluster, tmp_path: Path) -> None:
    answer = slurm.run(HEAD, ["sbatch", f"--array=0-{MAX_ARRAY_SIZE}", "--wrap", "true"], cwd=tmp_path)
    assert answer.stderr == "sbatch: error: Batch job submission failed: Invalid job array specification\n"


HOLDING = """
def test_it(slurm):
    slurm.run("head", ["srun", "-N4", "sh", "-c", 'touch FOLDER/$SLURM_PROCID; exec sleep inf'])
"""


@pytest.fixture
def another(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A second test run, with a cluster of its own and a job on all of its nodes."""
    test = tmp_path / "test_it.py"
    test.write_text(HOLDING.replace("FOLDER", str(tmp_path)))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.conftest",
            "-c",
            "/dev/null",
            "--rootdir",
            tmp_path,
            test,
        ],
        cwd=CHECKOUT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def begun() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return len(list(tmp_path.glob("[0-3]"))) == 4

    until(begun, "four tasks")
    yield process
    process.kill()
    process.communicate()


def control_groups() -> set[Path]:
    """Those of all clusters of this machine."""
    groups = memory_groups()
    return set() if groups is None else set(groups.glob("castoff-*"))


def names_of(processes: list[psutil.Process]) -> set[str]:
    """Of those that still live."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(process.name())
    return found


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_it_ends_with_the_test_run(name: str, slurm: SlurmCluster, another: subprocess.Popen[str]) -> None:
    family: list[psutil.Process] = []

    def begun() -> bool:
        family[:] = psutil.Process(another.pid).children(recursive=True)
        return {"slurmctld", "slurmd", "mariadbd", "sleep"} <= names_of(family)

    until(begun, "a cluster with a job")
    assert "sh" not in slurm.run(HEAD, ["squeue", "--noheader", "--format=%j"]).stdout.split()
    groups = control_groups()
    assert len(groups) >= 2 or not slurm.limits_memory
    another.send_signal(signal.Signals[name])
    gone, alive = psutil.wait_procs(family, timeout=patience.SECONDS)
    assert alive == [] and len(gone) == len(family)
    until(lambda: len(groups - control_groups()) >= slurm.limits_memory, "the end of its control groups")
