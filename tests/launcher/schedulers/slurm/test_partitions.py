"""What Slurm says about its machine, read from what real ones answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.schedulers.machine_info import AwayHost, MachineInfo, NodeKind, QueueInfo, User
from castoff.launcher.schedulers.slurm import partitions as slurm_limits

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
            "gpu": QueueInfo(max_nodes=2, max_walltime=172_800),  # its QOS allows a job 8 nodes, and it has 2
            "long": QueueInfo(min_nodes=2, max_nodes=2),
            "quiet": QueueInfo(  # it is hidden
                max_nodes=1,
                max_walltime=5400,
                offered=False,
                starts_jobs=False,
                notes=("its state is DOWN",),
            ),
        }

    def test_qos(self) -> None:
        qos = info("slurm-accounting").qos
        assert qos is not None
        assert qos["normal"] == QueueInfo()
        assert qos["gpu_debug"] == QueueInfo(max_nodes=8, max_walltime=1800, max_jobs=5)
        assert (qos["gpu_shared"].max_nodes, qos["gpu_shared"].max_devices) == (1, 2)
        assert [name for name, one in qos.items() if not one.offered] == ["part_gpu"], (
            "it hangs on a partition"
        )
        assert qos["capability"] == QueueInfo(min_nodes=4, max_walltime=36 * 3600 + 31 * 60)

    def test_the_rest(self) -> None:
        found = info("slurm-accounting")
        assert (found.default_queue, found.array_count) == ("debug", 65000)
        assert found.nodes == [
            NodeKind(*(64, 4, "a100", 20000), nodes=2, sockets=1, cpus_per_core=2, queues=("debug", "gpu")),
            NodeKind(
                *(128, 0, None, 20000), nodes=2, sockets=2, cpus_per_core=2, queues=("debug", "long", "quiet")
            ),
        ]
        assert found.user == User(
            ("phys", "chem"), "phys", ("gpu_debug", "gpu_regular", "normal"), default_qos="normal"
        )
        assert (found.name, found.version) == ("lab", "22.05.8")
        assert found.fields == {"gpu_request": "gpus-per-node"}


class TestWithoutAccounting:
    def test_all(self) -> None:
        found = info("slurm-plain")
        assert found.qos is None
        assert found.queues == {"main": QueueInfo(max_nodes=4), "urgent": QueueInfo(max_nodes=4)}
        assert (found.default_queue, found.array_count) == ("main", 1001)
        # Of 12 sockets of one core nobody has told Slurm, nor of 1 MB.
        assert found.nodes == [NodeKind(12, nodes=4, queues=("main", "urgent"))]
        assert found.user is None and found.lacks == ("qos", "user")


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
    (kind,) = info("slurm-plain", nodes=f"3|2|64|128|64000|{gres}|(null)\n", hosts="").nodes
    assert (kind.cores, kind.devices) == (128, devices)


def test_nodes_that_are_alike_are_one_kind() -> None:
    lines = [
        "3|2|64|128|64000|gpu:4|fast,new",
        "2|2|64|128|63900|gpu:4|fast,old",
        "1|2|64|128|32000|gpu:4|fast",
    ]
    nodes = info("slurm-plain", nodes="\n".join(lines), hosts="").nodes
    assert [(one.nodes, one.memory, one.features) for one in nodes] == [
        (5, 63900, ("fast",)),
        (1, 32000, ("fast",)),
    ]


def test_cores_that_no_job_gets() -> None:
    """As a real Slurm showed a node of such a kind; the number of nodes is the kinds' alone."""
    hosts = (
        (ANSWERS / "slurm-accounting" / "hosts.txt")
        .read_text()
        .replace("Boards=1 ", "Boards=1 CoreSpecCount=8 ")
    )
    nodes = info("slurm-accounting", hosts=hosts).nodes
    assert [(one.nodes, one.cores, one.reserved) for one in nodes] == [(2, 64, 8), (2, 128, 8)]


def test_hosts_that_get_no_jobs() -> None:
    line = "NodeName={} State={} Partitions=gpu OS=Linux 6.1 {}\n"
    drained = "Reason=bad GPU 2, see ticket=7 [root@2026-11-28T22:00:00] Comment=mine"
    rows = [("n1", "IDLE+DRAIN", drained), ("n2", "MIXED*", ""), ("n3", "IDLE+POWERED_DOWN", "")]
    rows += [("n4", "ALLOCATED", "Reason=old"), ("n5", "DOWN", "Reason=no power")]
    assert info("slurm-plain", hosts="".join(line.format(*row) for row in rows)).away == (
        AwayHost("n1", "idle+drain", "bad GPU 2, see ticket=7", ("gpu",)),
        AwayHost("n2", "mixed*", "", ("gpu",)),
        AwayHost("n5", "down", "no power", ("gpu",)),
    )


def test_who_may_use_a_partition() -> None:
    line = "PartitionName=p MinNodes=1 MaxNodes=1 MaxTime=1:00:00 AllowAccounts=phys,chem DenyQos=long"
    line += " State=DRAIN"
    assert info("slurm-plain", partitions=f"{line} DefaultTime=00:10:00\n").queues["p"].notes == (
        "for the accounts phys, chem alone",
        "not for the QOS long",
        "its state is DRAIN",
        "a job without a walltime gets 00:10:00",
    )


def questions(**others: str) -> str:
    return " ".join(question for question, _ in info("slurm-accounting", **others).questions)


def test_what_it_leaves_open() -> None:
    assert questions() == ""
    config = (
        "AccountingStorageEnforce = associations\nJobSubmitPlugins        = lua\nSelectType = select/linear\n"
    )
    asked = questions(
        config=config, user="", partitions="PartitionName=p MinNodes=1 MaxNodes=1 MaxTime=NONE\n"
    )
    assert "submit filter (lua)" in asked and "no default" in asked and "Which account" in asked
    assert info("slurm-accounting", config=config).fields == {"gpu_request": "gres"}


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("nodes", "a|b|c|d|e|f|g\n"),
        ("qos", "normal|soon||\n"),
        ("partitions", "x=1"),
    ],
)
def test_what_slurm_does_not_write(about: str, text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        info("slurm-plain", **{about: text})
