"""A profile of a PBS cluster: made from what its server says, completed by a node, and used."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.cluster.desk import Desk

from .cluster import PbsCluster
from .settings import CPUS, GPUS

pytestmark = pytest.mark.costly


@pytest.fixture
def desk(pbs: PbsCluster, tmp_path: Path) -> Desk:
    """With profiles of its own."""
    made = Desk(pbs, tmp_path / "desk")
    made.environ["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return made


def test_a_profile_from_the_server_and_a_node(desk: Desk, tmp_path: Path) -> None:
    """ssh between the nodes is closed: ranks start by PBS's own way, which the probe has found."""
    answer = desk.castoff("sites", "new", "lab", "--scheduler", "pbs", "--probe")
    assert answer.code == 0, answer.errors
    assert f"node       {CPUS} CPUs, {GPUS} devices, " in answer.output
    assert "mpiexec of hydra, ssh to another host is closed" in answer.output
    text = (tmp_path / "config" / "castoff" / "sites" / "lab.yaml").read_text()
    assert "\ndefault_queue: workq\n" in text
    assert "    ranges: [{max_nodes: 2, max_walltime: 1h}]\n    max_jobs: 1\n" in text
    if psutil.cpu_count(logical=False) not in (CPUS, CPUS // 2, CPUS // 4):  # which the nodes only claim
        assert f"and the profile's nodes have {CPUS} CPUs: it is another kind of node" in answer.output
        assert "\n  sockets:" not in text
    assert "# ? Which mpiexec" not in text and "# ? Which account" in text
    words = ("--name", "ranks", "--nodes", "2", "--ranks-per-node", "1", "--walltime", "5m")
    program = 'echo "$(hostname) by ${HYDRA_LAUNCHER_EXEC##*/}"'  # the login shell's is called launcher
    answer = desk.castoff("submit", "--site", "lab", *words, "--", "sh", "-c", program)
    assert answer.code == 0, answer.errors
    assert desk.castoff("wait", "ranks").code == 0, desk.castoff("logs", "ranks").output
    said = sorted(line.partition("] ")[2] for line in desk.castoff("logs", "ranks").output.splitlines())
    assert len({*said}) == 2 and all(line.endswith(" by reach") for line in said), said


def test_a_limit_of_the_server_is_the_profiles(desk: Desk) -> None:
    assert desk.castoff("sites", "new", "lab", "--scheduler", "pbs").code == 0
    assert desk.castoff("sites", "check", "lab").code == 0
    answer = desk.castoff("render", "--site", "lab", "--queue", "debug", "--nodes", "3", "--", "true")
    assert answer.code == 2 and "takes 1 to 2 nodes for up to 1h (qstat -Qf debug, " in answer.errors
