"""What castoff renders for each Slurm site is what a Slurm with such partitions and nodes accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from castoff import render
from tests.launcher.scripts.examples import EXAMPLES, site_of

from .slurm import HEAD, NODES, SlurmCluster

pytestmark = pytest.mark.costly

SCRIPTS = [name for name in EXAMPLES if site_of(EXAMPLES[name].site).scheduler == "slurm"]

FURTHER = """
FirstJobId=101
PartitionName=gpu Nodes=ALL
PartitionName=batch Nodes=ALL
PartitionName=extended Nodes=ALL
"""

BEYOND = {"frontier-debug": "it wants 100 nodes, and the cluster has four"}
"""Scripts that the cluster cannot accept, and why."""


@pytest.fixture(scope="module")
def large(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of its own, with the CPUs, partitions, qualities of service and features of those sites."""
    cluster = SlurmCluster(tmp_path_factory.mktemp("large"), cpus=128, further=FURTHER)
    try:
        commands = [
            ["sacctmgr", "--immediate", "add", "qos", "regular", "shared", "debug"],
            *(
                ["scontrol", "update", f"NodeName={node}", f"{which}Features=gpu,hbm80g"]
                for node in NODES
                for which in ("Available", "Active")
            ),
            ["sbatch", "--output=/dev/null", "--wrap=true"],  # what the examples wait for
        ]
        for command in commands:
            answer = cluster.run(HEAD, command)
            assert answer.returncode == 0, f"{command}: {answer.stderr}"
        yield cluster
    finally:
        cluster.close()


def accepted(cluster: SlurmCluster, script: Path) -> tuple[bool, str]:
    answer = cluster.run(HEAD, ["sbatch", "--test-only", script])
    return answer.returncode == 0, answer.stderr


def test_sbatch_accepts_them(large: SlurmCluster, tmp_path: Path) -> None:
    assert len(SCRIPTS) > 30
    answers = {}
    for name in SCRIPTS:
        script = tmp_path / f"{name}.sh"
        script.write_text(render(EXAMPLES[name].plan()))
        answers[name] = accepted(large, script)
    refused = {name: said for name, (fine, said) in answers.items() if not fine}
    assert refused.keys() == BEYOND.keys(), refused


def test_and_would_not_accept_anything(large: SlurmCluster, tmp_path: Path) -> None:
    text = render(EXAMPLES["slurm-1-node"].plan())
    for given, instead in (
        ("--partition=gpu", "--partition=none-such"),
        ("--nodes=1", "--nodes=5"),
        ("--cpus-per-task=8", "--cpus-per-task=64"),
        ("--gpus-per-node=4", "--gpus-per-node=5"),
        ("--time=00:30:00", "--time=soon"),
    ):
        assert given in text
        (tmp_path / "job.sh").write_text(text.replace(given, instead))
        assert not accepted(large, tmp_path / "job.sh")[0], instead
