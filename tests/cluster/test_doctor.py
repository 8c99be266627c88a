"""castoff doctor on a real Slurm: what a user gets wrong, and what hosts do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until

from .desk import Desk
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly

Doctor = Callable[..., dict[str, list[dict[str, Any]]]]
PYTHON = ("--python", sys.executable)


@pytest.fixture
def desk(slurm: SlurmCluster, tmp_path: Path) -> Desk:
    return Desk(slurm, tmp_path / "desk")


@pytest.fixture
def doctor(desk: Desk) -> Doctor:
    """What it finds, by what that is about."""

    def findings(*words: str, code: int = 0) -> dict[str, list[dict[str, Any]]]:
        answer = desk.castoff("doctor", "--json", *words)
        assert answer.code == code, answer.output + answer.errors
        found: dict[str, list[dict[str, Any]]] = {}
        for line in answer.output.splitlines():
            one = json.loads(line)
            found.setdefault(one["about"], []).append(one)
        return found

    return findings


def test_a_drained_host_is_named(doctor: Doctor, slurm: SlurmCluster) -> None:
    update = ["scontrol", "update", "nodename=n2"]
    slurm.run("head", [*update, "state=drain", "reason=bad GPU 2"])
    try:
        one, all_of_them = (
            doctor("--set", f"nodes={nodes}", "-t", "1m", "--", "true", code=code)["hosts"][0]
            for nodes, code in ((1, 0), (4, 1))  # Slurm calls a job of all of them impossible
        )
    finally:
        slurm.run("head", [*update, "state=resume"])
    assert "n2 (" in one["fact"] and "drain: bad GPU 2)" in one["fact"] and one["status"] == "ok"
    assert all_of_them["status"] == "warning" and "waits until they are back" in all_of_them["remedy"]


def test_three_mistakes(doctor: Doctor, slurm: SlurmCluster) -> None:
    """An account that is not there, a partition that is down, more nodes than there are."""
    slurm.run("head", ["scontrol", "update", "partition=urgent", "state=down"])
    try:
        found = doctor("-A", "nobody", "-q", "urgent", "-t", "1m", "--", "true", code=1)
    finally:
        slurm.run("head", ["scontrol", "update", "partition=urgent", "state=up"])
    (account,), (queue,) = found["account"], found["queue"]
    assert account["status"] == "warning" and "nobody is not an account of root" in account["fact"]
    assert queue["status"] == "problem" and queue["fact"].startswith(
        "urgent starts no jobs now; its state is DOWN"
    )
    assert queue["remedy"].endswith("--queue main")
    found = doctor("--set", "nodes=9", "-t", "1m", "--", "true", code=1)
    assert found["queue"][0]["fact"].startswith("main takes 4 nodes at most, and the job asks for 9")
    assert "Requested node configuration is not available" in found["job"][0]["fact"]


@pytest.mark.long
def test_a_controller_that_is_gone(doctor: Doctor, slurm: SlurmCluster) -> None:
    with slurm.without_controller():
        (one,) = doctor("--nodes", "2", code=1)["scheduler"]
    assert one["status"] == "problem" and "Unable to contact slurm controller" in one["fact"]


def test_nodes(doctor: Doctor, desk: Desk) -> None:
    """Each host is looked at, measured, and named; nothing of it is left in the queue."""
    found = doctor("--nodes", "2", *PYTHON, "-t", "2m")
    assert found["nodes"][0]["fact"].startswith("2 ranks ran on n1, n2 (run castoff-doctor-")
    assert found["preflight"][0]["fact"] == "n1, n2: devices, memory, disks, clock and network"
    assert found["all-reduce"][0]["fact"].startswith("exact on 2 ranks; ")
    assert [one["values"]["host"] for one in found["speed"]] == ["n1", "n2"]
    until(lambda: not desk.run("squeue", "--noheader").output, "its job in the queue")


@pytest.mark.long
def test_a_slow_link(doctor: Doctor, slurm: SlurmCluster) -> None:
    shaped = "tbf rate 100mbit burst 64kb latency 400ms"
    slurm.run("n3", ["tc", "qdisc", "add", "dev", "eth0", "root", *shaped.split()])
    try:
        found = doctor("--nodes", "3", *PYTHON)
    finally:
        slurm.run("n3", ["tc", "qdisc", "del", "dev", "eth0", "root"])
    (slow,) = [one for one in found["speed"] if one["status"] != "ok"]
    assert slow["fact"].startswith("n3: ") and "clearly slower" in slow["fact"]
    assert slow["remedy"].startswith("--exclude n3")


@pytest.fixture
def wrong_name(slurm: SlurmCluster, tmp_path: Path) -> Iterator[None]:
    """n2 takes n1 for another host."""
    wrong = tmp_path / "hosts"
    wrong.write_text(slurm.run("n2", ["sed", r"s/.*\bn1$/10.99.99.99 n1/", "/etc/hosts"]).stdout)
    slurm.run("n2", ["mount", "--bind", wrong, "/etc/hosts"])
    yield
    slurm.run("n2", ["umount", "/etc/hosts"])


@pytest.mark.usefixtures("wrong_name")
def test_a_wrong_name(doctor: Doctor) -> None:
    found = doctor("--nodes", "2", *PYTHON, code=1)
    (one,) = [one for one in found["preflight"] if one["status"] == "problem"]
    assert one["fact"].startswith("n2 is not fit: it takes n1 for 10.99.99.99")
    assert one["remedy"].startswith("--exclude n2")
    assert found["nodes"][-1]["fact"].startswith("1 rank ran on n1"), "the others are measured all the same"


def test_a_python_without_torch(doctor: Doctor, tmp_path: Path) -> None:
    """The job's own: found here before, and on the nodes by the job."""
    bare = tmp_path / "bare" / "python"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    found = doctor("--nodes", "2", "--python", str(bare), "--", "python", "-c", "1", code=1)
    assert found["torch"][0]["status"] == "warning" and found["torch"][0]["fact"] == f"{bare} has no torch"
    (one,) = [one for one in found["nodes"] if one["status"] == "problem"]
    assert "importing torch: ModuleNotFoundError: No module named 'torch'" in one["fact"]


def test_more_nodes_than_there_are(doctor: Doctor, desk: Desk) -> None:
    """Slurm would take the job, and never start it."""
    found = doctor("--nodes", "9", *PYTHON, code=1)
    (one,) = found["nodes"]
    assert one["status"] == "problem" and "`sbatch --test-only` says: " in one["fact"]
    until(lambda: not desk.run("squeue", "--noheader").output, "its job in the queue")


@pytest.mark.parametrize("number", [2, 15])
def test_ctrl_c_or_term_cancels_it(desk: Desk, number: int) -> None:
    words = ("--nodes", "2", "--set", "directives={hold: true}", *PYTHON)
    process = desk.start("castoff", "doctor", *words)
    assert process.stderr is not None
    for line in process.stderr:
        if "Ctrl-C cancels it" in line:
            break
    desk.cluster.hosts.inside(process).send_signal(number)
    ended = desk.end(process)
    assert ended.code == 128 + number and "was cancelled" in ended.errors, ended.errors
    until(lambda: not desk.run("squeue", "--noheader").output, "its job in the queue")
