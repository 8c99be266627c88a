"""A profile beside what its scheduler says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.quantities import clock
from launcher.config.site import Search, Site
from launcher.schedulers.machine import Bounds, NodeKind, Told, ToldQueue
from launcher.schedulers.pbs import machine as pbs_limits
from launcher.schedulers.site_check import Comparison
from launcher.schedulers.slurm import machine as slurm_limits

ANSWERS = Path(__file__).parents[1] / "answers"
TODAY = "2026-11-21"
FACT = {"source": "a wiki", "date": "2026-10-01"}

POLARIS = pbs_limits.parse(
    {about: (ANSWERS / "pbs" / f"{about}.json").read_text() for about in ("queues", "server", "nodes")}
)
LAB = slurm_limits.parse(
    {path.stem: path.read_text() for path in (ANSWERS / "slurm-accounting").glob("*.txt")}
)
NOTHING = Told(qos={})


def site(**fields: Any) -> Site:
    plain = {"name": "here", "description": "d", "scheduler": "slurm", "starter": "srun", **fields}
    return msgspec.convert(plain, Site)


def queue(**fields: Any) -> dict[str, Any]:
    return {**fields, **FACT}


def found(at: Site, told: Told) -> Comparison:
    return Comparison(at, told, TODAY)


def fields(comparison: Comparison) -> list[str]:
    return [difference.field for difference in comparison.differences]


class TestPolaris:
    """The built-in profile beside answers in PBS's form."""

    def test_what_differs(self) -> None:
        comparison = found(Site.load("polaris", search=Search({}, None)), POLARIS)
        assert fields(comparison) == ["queues.debug-scaling.max_jobs", "array.max_count"]
        assert comparison.differences[0] == (
            "queues.debug-scaling.max_jobs",
            "1",
            "polaris/running-jobs/index, table of queues",
            "2026-08-19",
            "2",
            {
                "queues": {
                    "debug-scaling": {"max_jobs": 2, "source": "qstat -Qf debug-scaling", "date": TODAY}
                }
            },
        )
        assert "queues that the profile does not list: R640002" in comparison.not_compared

    def test_a_routing_queue_takes_what_its_queues_take(self) -> None:
        small = POLARIS.queues["small"]._replace(bounds=Bounds(10, 24, 300, 4 * 3600))
        told = POLARIS._replace(queues={**POLARIS.queues, "small": small, "backfill-small": small})
        (difference,) = [
            one for one in found(Site.load("polaris"), told).differences if one.field == "queues.prod.ranges"
        ]
        assert difference.profile.startswith("10 to 24 nodes for 5m to 3h or 25 to 99")
        assert difference.scheduler.startswith("10 to 24 nodes for 00:05:00 to 04:00:00 or 25 to 99")
        assert len(difference.mend["queues"]["prod"]["ranges"]) == 3

    def test_queues_behind_it_that_nobody_shows(self) -> None:
        told = POLARIS._replace(queues={"prod": POLARIS.queues["prod"]})
        comparison = found(site(scheduler="pbs", starter="pals", queues={"prod": queue()}), told)
        assert "queues.prod.ranges: it routes to queues that the scheduler does not show" in (
            comparison.not_compared
        )

    def test_file_systems(self) -> None:
        told = POLARIS._replace(filesystems=["home", "grand"])
        comparison = found(Site.load("polaris"), told)
        (difference,) = [one for one in comparison.differences if one.field.startswith("required")]
        assert (difference.field, difference.profile) == ("required.2.example", "eagle")
        assert (difference.scheduler, difference.mend) == ("valid are home, grand", {})
        mine = msgspec.structs.replace(Site.load("polaris"), directives={"filesystems": "home:flare"})
        assert "directives.filesystems" in fields(found(mine, POLARIS))

    def test_threads_and_tiles_are_counted_otherwise(self) -> None:
        at = Site.load("aurora")
        for cpus, devices, same in ((208, 6, True), (104, 12, True), (104, 0, True), (64, 6, False)):
            told = POLARIS._replace(nodes=[NodeKind(9, None, cpus, devices)])
            assert ("node" not in fields(found(at, told))) is same


class TestSlurm:
    def test_a_profile_that_says_the_same(self) -> None:
        at = site(
            queues={
                "debug": queue(ranges=[{"max_nodes": 2, "max_walltime": "30m"}]),
                "gpu": queue(ranges=[{"max_nodes": 8, "max_walltime": "2d"}]),
                "long": queue(ranges=[{"min_nodes": 2}]),
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
        )
        comparison = found(at, LAB)
        assert comparison.differences == []
        assert comparison.mended() == {}
        assert comparison.not_compared[0] == (
            "qos that the profile does not list: normal, part_gpu, gpu_regular, capability"
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
        comparison = found(at, LAB)
        assert {one.field: (one.profile, one.scheduler) for one in comparison.differences} == {
            "queues.debug.ranges": ("1 to 2 nodes for up to 1h", "1 to 2 nodes for up to 00:30:00"),
            "queues.gone": ("there is one", "there is no gone"),
            "queues.gpu": ("there is none", "there is gpu, for 1 to 8 nodes for up to 48:00:00"),
            "queues.long": ("there is none", "there is long, for at least 2 nodes"),
            "qos.debug.max_jobs": ("nothing", "5"),
            "default_queue": ("gone", "debug"),
            "array.max_count": ("1001", "65000"),
            "node": (
                "a node of 32 cores and 4 devices",
                "2 of 128 cores and 0 devices, 2 of 64 cores and 4 devices",
            ),
        }
        assert comparison.differences[0].source == "a wiki"
        assert comparison.mended()["queues"]["gone"] is None

    def test_what_mends_it_mends_it(self) -> None:
        at = Site.load("slurm", search=Search({}, None))
        mine = {
            "queues": {"debug": queue(ranges=[{"max_nodes": 9}]), "gone": queue()},
            "qos": {"gpu_debug": queue(max_jobs=99), "gpu_shared": queue()},
            "other_queues": False,
            "default_queue": "gpu",
        }
        before = msgspec.convert({**msgspec.to_builtins(at), **mine}, Site)
        assert len(fields(found(before, LAB))) > 5
        assert fields(found(mended(before, found(before, LAB)), LAB)) == []

    def test_a_machine_that_chooses_the_partition_itself(self) -> None:
        assert fields(found(site(other_queues=False, array={"max_count": 65000, **FACT}), LAB)) == []

    def test_a_submit_filter_may_know_limits_that_slurm_does_not_name(self) -> None:
        told = NOTHING._replace(queues={"batch": ToldQueue(Bounds(), "s")})
        at = site(queues={"batch": queue(ranges=[{"max_nodes": 91, "max_walltime": "2h"}])})
        assert fields(found(at, told)) == ["queues.batch.ranges"]
        filtered = found(at, told._replace(submit_filter="JobSubmitPlugins=lua"))
        assert filtered.differences == []
        assert filtered.not_compared[0] == (
            "queues.batch.ranges: the scheduler names no max_nodes and no max_walltime, but its submit "
            "filter (JobSubmitPlugins=lua) may have one"
        )
        half = told._replace(
            queues={"batch": ToldQueue(Bounds(None, 50), "s")}, submit_filter="JobSubmitPlugins=lua"
        )
        assert fields(found(at, half)) == ["queues.batch.ranges"], "the nodes differ all the same"

    def test_bins_of_one_partition_are_compared_by_their_outermost_bounds(self) -> None:
        at = Site.load("frontier")
        told = NOTHING._replace(
            queues={
                "batch": ToldQueue(Bounds(None, 9472, None, 12 * 3600), "s"),
                "extended": ToldQueue(Bounds(None, 64, None, 24 * 3600), "s"),
            },
            qos={"debug": ToldQueue(Bounds(None, None, None, 7200), "s", max_jobs=1)},
        )
        assert fields(found(at, told)) == []
        longer = {**told.queues, "batch": ToldQueue(Bounds(None, 9472, None, 86400), "s")}
        assert fields(found(at, told._replace(queues=longer))) == ["queues.batch.ranges"]

    def test_what_was_not_answered(self) -> None:
        told = NOTHING._replace(qos=None, unanswered=(("qos", "sacctmgr said no"), ("nodes", "n")))
        assert "qos: sacctmgr said no" not in found(site(), told).not_compared, "nothing was to be compared"
        assert "qos: sacctmgr said no" in found(site(qos={"q": queue()}), told).not_compared

    def test_numbers_that_slurm_does_not_name(self) -> None:
        told = NOTHING._replace(queues={"q": ToldQueue(Bounds(), "s")})
        at = site(queues={"q": queue(max_jobs=3)}, array={"max_count": 5, **FACT})
        comparison = found(at, told)
        assert comparison.differences == []
        assert comparison.not_compared[:2] == [
            "queues.q.max_jobs: the scheduler names none",
            "array.max_count: the scheduler names none",
        ]


def mended(before: Site, comparison: Comparison) -> Site:
    """The profile with what mends it laid over, as a project's profile would be."""
    plain = msgspec.to_builtins(before)
    for key, value in yaml.safe_load(yaml.safe_dump(comparison.mended())).items():
        if isinstance(value, dict) and key in ("queues", "qos"):
            for name, part in value.items():
                plain[key][name] = part and {**plain[key].get(name, {}), **part}
            plain[key] = {name: part for name, part in plain[key].items() if part is not None}
        else:
            plain[key] = value
    return msgspec.convert(plain, Site)


bounds = st.builds(
    Bounds,
    st.none() | st.integers(2, 9),
    st.none() | st.integers(10, 99),
    st.none() | st.integers(1, 99),
    st.none() | st.integers(100, 99_999),
)


@given(st.dictionaries(st.sampled_from("abc"), bounds), st.dictionaries(st.sampled_from("abc"), bounds))
def test_any_profile_can_be_mended(ours: dict[str, Bounds], theirs: dict[str, Bounds]) -> None:
    def times(number: int | None) -> str | None:
        return None if number is None else clock(number)

    queues = {
        name: queue(
            ranges=[
                {
                    "min_nodes": one.min_nodes or 1,
                    "max_nodes": one.max_nodes,
                    "min_walltime": times(one.min_walltime),
                    "max_walltime": times(one.max_walltime),
                }
            ]
        )
        for name, one in ours.items()
    }
    told = NOTHING._replace(queues={name: ToldQueue(one, "s") for name, one in theirs.items()})
    at = site(queues=queues, other_queues=False)
    comparison = found(at, told)
    same = ours == theirs or not ours
    assert (comparison.differences == []) is same
    if not same and theirs:
        assert found(mended(at, comparison), told).differences == []


@pytest.mark.parametrize("name", ["aurora", "frontier", "perlmutter", "polaris", "pbs", "slurm"])
def test_every_built_in_profile_can_be_compared(name: str) -> None:
    at = Site.load(name, search=Search({}, None))
    told = LAB if at.scheduler == "slurm" else POLARIS
    comparison = found(at, told)
    assert comparison.not_compared
    assert all(one.profile and one.scheduler for one in comparison.differences)
