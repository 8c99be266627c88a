"""What Slurm says about its machine, read from what real ones answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.machine_info import MachineInfo, QueueInfo
from launcher.schedulers.slurm import machine as slurm_limits

ANSWERS = Path(__file__).parents[2] / "answers"


def info(folder: str, **others: str) -> MachineInfo:
    """What a recorded cluster says, with some answers put in another's place."""
    answers = {path.stem: path.read_text() for path in (ANSWERS / folder).glob("*.txt")}
    return slurm_limits.parse({**answers, **others})


class TestWithAccounting:
    def test_partitions(self) -> None:
        queues = info("slurm-accounting").queues
        assert queues == {
            "debug": QueueInfo(max_nodes=2, max_walltime=1800),
            "gpu": QueueInfo(max_nodes=8, max_walltime=172_800),  # its QOS allows a job 8 nodes
            "long": QueueInfo(min_nodes=2),
            "quiet": QueueInfo(max_walltime=5400, offered=False),  # it is hidden
        }

    def test_qos(self) -> None:
        qos = info("slurm-accounting").qos
        assert qos is not None
        assert qos["normal"] == QueueInfo()
        assert qos["gpu_debug"] == QueueInfo(max_nodes=8, max_walltime=1800, max_jobs=5)
        assert (qos["gpu_shared"].max_nodes, qos["gpu_shared"].max_devices) == (1, 2)
        assert qos["capability"] == QueueInfo(min_nodes=4, max_walltime=36 * 3600 + 31 * 60)

    def test_the_rest(self) -> None:
        found = info("slurm-accounting")
        assert (found.default_queue, found.array_count) == ("debug", 65000)
        assert found.nodes == [(128, 0), (64, 4)]


class TestWithoutAccounting:
    def test_all(self) -> None:
        found = info("slurm-plain")
        assert found.qos is None
        assert found.queues == {"main": QueueInfo(), "urgent": QueueInfo()}
        assert (found.default_queue, found.array_count) == ("main", 1001)
        assert found.nodes == [(12, 0)]


@pytest.mark.parametrize(
    ("gres", "devices"),
    [
        ("(null)", 0),
        ("gpu:4", 4),
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu:a100:2,gpu:v100:2", 4),
        ("craynetwork:4,gpu:mi250x:8(S:0-3)", 8),
    ],
)
def test_devices_of_a_node(gres: str, devices: int) -> None:
    assert info("slurm-plain", nodes=f"3|2|64|{gres}\n").nodes == [(128, devices)]


def test_nodes_that_are_alike_are_one_kind() -> None:
    nodes = info("slurm-plain", nodes="3|2|64|(null)\n2|1|128|(null)\n1|2|64|gpu:4\n").nodes
    assert nodes == [(128, 0), (128, 4)]


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("nodes", "a|b|c|d\n"),
        ("qos", "normal|soon||\n"),
        ("partitions", "x=1"),
    ],
)
def test_what_slurm_does_not_write(about: str, text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        info("slurm-plain", **{about: text})
