"""A profile beside what its scheduler says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff.launcher.config.site import Search, Site
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo
from castoff.launcher.schedulers.pbs import queues_and_nodes as pbs_limits
from castoff.launcher.schedulers.slurm import partitions as slurm_limits
from castoff.launcher.siting.check import Comparison
from tests.launcher.planning.test_device_queues import lab

ANSWERS = Path(__file__).parents[1] / "answers"
FACT = {"source": "a wiki", "date": "2026-10-01"}

POLARIS = pbs_limits.parse({path.stem: path.read_text() for path in (ANSWERS / "pbs").glob("*.txt")})
LAB = slurm_limits.parse(
    {path.stem: path.read_text() for path in (ANSWERS / "slurm-accounting").glob("*.txt")}
)
NOTHING = MachineInfo(qos={})


def site(**fields: Any) -> Site:
    plain = {"name": "here", "description": "d", "scheduler": "slurm", "launcher": "srun", **fields}
    return msgspec.convert(plain, Site)


def queue(**fields: Any) -> dict[str, Any]:
    return {**fields, **FACT}


def fields(comparison: Comparison) -> list[str]:
    return [difference.field for difference in comparison.differences]


class TestPolaris:
    """The built-in profile beside answers in PBS's form."""

    def test_what_differs(self) -> None:
        comparison = Comparison(Site.load("polaris", search=Search({}, None)), POLARIS)
        assert fields(comparison) == ["queues.debug-scaling.max_jobs", "array.max_count"]
        assert comparison.differences[0] == (
            ("queues", "debug-scaling", "max_jobs"),
            "1",
            "polaris/running-jobs/index, table of queues",
            "2026-08-19",
            "2",
        )
        assert "queues that the profile does not list: R640002" in comparison.not_compared

    def test_threads_and_tiles_are_counted_otherwise(self) -> None:
        at = Site.load("aurora")
        for cpus, devices, same in ((208, 6, True), (104, 12, True), (104, 0, True), (64, 6, False)):
            info = POLARIS._replace(nodes=[NodeKind(cpus, devices)])
            assert ("node" not in fields(Comparison(at, info))) is same


class TestSlurm:
    def test_a_profile_that_agrees(self) -> None:
        at = site(
            queues={
                "debug": queue(ranges=[{"max_nodes": 2, "max_walltime": "30m"}]),
                "gpu": queue(ranges=[{"max_nodes": 2, "max_walltime": "2d"}]),
                "long": queue(ranges=[{"min_nodes": 2, "max_nodes": 2}]),
            },
            qos={
                "debug": queue(
                    ranges=[{"max_nodes": 8, "max_walltime": "30m"}], max_jobs=5, listed_as="gpu_debug"
                ),
                "shared": queue(
                    ranges=[{"max_nodes": 1, "max_walltime": "48h"}], max_devices=2, listed_as="gpu_shared"
                ),
            },
            other_queues=False,
            default_queue="debug",
            array={"max_count": 65000, **FACT},
            node={"sockets": ["0-63"], "devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", **FACT},
            other_nodes=[{"cores": 128, **FACT}],
        )
        comparison = Comparison(at, LAB)
        assert comparison.differences == []
        assert comparison.not_compared[0] == (
            "qos that the profile does not list: normal, gpu_regular, capability"
        )

    def test_each_thing_that_may_differ(self) -> None:
        at = site(
            queues={
                "debug": queue(ranges=[{"max_nodes": 2, "max_walltime": "1h"}]),
                "gone": queue(ranges=[{"max_nodes": 2}]),
            },
            qos={"debug": queue(ranges=[{"max_nodes": 8, "max_walltime": "30m"}], listed_as="gpu_debug")},
            other_queues=False,
            default_queue="gone",
            array={"max_count": 1001, **FACT},
            node={"sockets": ["0-31"], "devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", **FACT},
        )
        comparison = Comparison(at, LAB)
        assert {one.field: (one.profile, one.scheduler) for one in comparison.differences} == {
            "queues.debug.max_walltime": ("01:00:00", "00:30:00"),
            "queues.gone": ("listed", "not listed"),
            "queues.gpu": ("not listed", "listed"),
            "queues.long": ("not listed", "listed"),
            "qos.debug.max_jobs": ("nothing", "5"),
            "default_queue": ("gone", "debug"),
            "array.max_count": ("1001", "65000"),
            "node": ("32 cores, 4 devices", "64 cores, 4 a100, 20000M or 128 cores, no devices, 20000M"),
        }
        assert comparison.differences[0].source == "a wiki"

    def test_a_machine_that_chooses_the_partition_itself(self) -> None:
        assert fields(Comparison(site(other_queues=False, array={"max_count": 65000, **FACT}), LAB)) == []

    def test_bins_of_one_partition_are_compared_by_their_outermost_bounds(self) -> None:
        at = Site.load("frontier")
        info = NOTHING._replace(
            queues={
                "batch": QueueInfo(1, 9472, None, 12 * 3600),
                "extended": QueueInfo(1, 64, None, 24 * 3600),
            },
            qos={"debug": QueueInfo(max_walltime=7200, max_jobs=1)},
        )
        assert fields(Comparison(at, info)) == []
        longer = {**info.queues, "batch": QueueInfo(1, 9472, None, 86400)}
        assert fields(Comparison(at, info._replace(queues=longer))) == ["queues.batch.max_walltime"]

    def test_what_was_not_answered(self) -> None:
        info = NOTHING._replace(qos=None, unanswered=(("qos", "sacctmgr said no"), ("nodes", "n")))
        missing = Comparison(site(), info).not_compared
        assert "qos: sacctmgr said no" not in missing, "nothing was to be compared"
        assert "qos: sacctmgr said no" in Comparison(site(qos={"q": queue()}), info).not_compared

    def test_numbers_that_slurm_does_not_name(self) -> None:
        """A submit filter may know them all the same."""
        info = NOTHING._replace(queues={"q": QueueInfo(max_nodes=50)})
        limits = queue(ranges=[{"max_nodes": 91, "max_walltime": "2h"}], max_jobs=3)
        comparison = Comparison(site(queues={"q": limits}, array={"max_count": 5, **FACT}), info)
        assert fields(comparison) == ["queues.q.max_nodes"]
        assert comparison.not_compared[:3] == [
            "queues.q.max_walltime: 02:00:00, which the scheduler does not report",
            "queues.q.max_jobs: 3, which the scheduler does not report",
            "array.max_count: 5, which the scheduler does not report",
        ]


class TestNodes:
    """Every kind that there is beside those that the profile lists."""

    WHOLE = NodeKind(12, 4, "a100", 24000, nodes=3, queues=("main",))
    SHRUNKEN = NodeKind(4, 2, "a100", 24000, queues=("main",))

    @staticmethod
    def at(**more: Any) -> Site:
        node = {
            "sockets": ["0-11"],
            "devices": [4],
            "device_variable": "CUDA_VISIBLE_DEVICES",
            "memory": "24G",
        }
        return site(node={**node, **FACT}, **more)

    def test_a_host_that_shrank(self) -> None:
        """Others like it hid it: it is where this profile's jobs go."""
        comparison = Comparison(self.at(), NOTHING._replace(nodes=[self.WHOLE, self.SHRUNKEN]))
        ((path, ours, *_, theirs),) = comparison.differences
        assert (path, ours) == (("other_nodes",), "not listed")
        assert theirs == "1 node with 4 cores, 2 a100, 24000M (main)"

    @pytest.mark.parametrize(
        "change", [{"cores": 6}, {"devices": 3}, {"memory": 16000}, {"cores": 24, "memory": 48000}]
    )
    def test_each_thing_that_may_shrink(self, change: dict[str, Any]) -> None:
        info = NOTHING._replace(nodes=[self.WHOLE, self.WHOLE._replace(nodes=1, **change)])
        assert fields(Comparison(self.at(), info)) == ["other_nodes"]
        alone = NOTHING._replace(nodes=[self.WHOLE._replace(**change)])
        assert fields(Comparison(self.at(), alone)) == ["node"]

    def test_cores_that_the_profile_does_not_know(self) -> None:
        """PBS does not tell them, and a host that has lost some is noticed all the same."""
        node = {"memory": "24G", **FACT}
        info = NOTHING._replace(nodes=[self.WHOLE, self.SHRUNKEN], counts_threads=True)
        assert fields(Comparison(site(node=node, other_nodes=[]), info)) == ["other_nodes"]
        assert fields(Comparison(site(node=node), info)) == []
        listed = {"cores": 12, "devices": 4, "memory": "24000M", **FACT}
        assert fields(Comparison(site(node=node, other_nodes=[listed]), info)) == []

    def test_memory_that_is_a_little_less(self) -> None:
        info = NOTHING._replace(nodes=[self.WHOLE._replace(memory=24300)])
        assert fields(Comparison(self.at(), info)) == []

    def test_nodes_of_other_queues(self) -> None:
        """A profile that lists no other nodes says nothing of them; one that does lists all."""
        info = NOTHING._replace(nodes=[self.WHOLE, self.SHRUNKEN._replace(queues=("small",))])
        comparison = Comparison(self.at(), info)
        assert fields(comparison) == []
        assert "nodes in queues without the profile's nodes: 1 node with 4 cores, 2 a100, 24000M (small)" in (
            comparison.not_compared
        )
        assert fields(Comparison(self.at(other_nodes=[]), info)) == ["other_nodes"]
        listed = {"cores": 4, "devices": 2, "device_type": "a100", "memory": "24000M", **FACT}
        assert fields(Comparison(self.at(other_nodes=[listed]), info)) == []
        gone = NOTHING._replace(nodes=[self.WHOLE])
        assert fields(Comparison(self.at(other_nodes=[listed]), gone)) == ["other_nodes.0"]


@pytest.mark.parametrize("name", ["aurora", "frontier", "perlmutter", "polaris", "pbs", "slurm"])
def test_every_built_in_profile_can_be_compared(name: str) -> None:
    at = Site.load(name, search=Search({}, None))
    comparison = Comparison(at, LAB if at.scheduler == "slurm" else POLARIS)
    assert comparison.not_compared
    assert all(one.profile and one.scheduler for one in comparison.differences)


def test_pbs_bounds_the_number_of_chunks() -> None:
    """resources_max.nodect of a queue whose `select` counts devices is its most devices: no difference."""
    profile = lab()
    queues = {"gpu": QueueInfo(1, 2, None, None)}
    assert not Comparison(profile, MachineInfo(queues=queues)).differences
    queues = {"gpu": QueueInfo(1, 4, None, None)}
    (found,) = Comparison(profile, MachineInfo(queues=queues)).differences
    assert (found.field, found.profile, found.scheduler) == ("queues.gpu.max_nodes", "2", "4")
