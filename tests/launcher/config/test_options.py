"""A site's options: what some jobs want of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from castoff import JobSpec, Plan, Site, plan
from castoff.launcher.config.defaults import with_options
from castoff.launcher.config.site_fields import Node, Option
from castoff.launcher.errors import InvalidInput

FACT: dict[str, Any] = {"source": "the guide", "date": "2026-11-21", "description": "d"}
GOOD: dict[str, Any] = {
    **{"command": ["x"], "account": "a", "walltime": "30m", "queue": "debug"},
    "directives": {"filesystems": "home:flare"},
}


def site(**options: Option) -> Site:
    node = Node(sockets=["0-7"], reserved_cores="0", source="s", date="2026-11-21")
    return Site(
        name="there", description="d", scheduler="pbs", launcher="pals", node=node, options=options,
        setup=["site"], env={"A": "site", "B": "site"}, launcher_args=["--site"], teardown=["site down"],
    )  # fmt: skip


def planned(at: Site, **fields: Any) -> Plan:
    return plan(JobSpec.of({"command": ["x"], **fields}), at)


def refused(at: Site, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        planned(at, **fields)
    return {problem.path: problem.message for problem in caught.value.problems}


EVERYTHING = Option(
    setup=["first"],
    setup_last=["last"],
    teardown=["down"],
    env={"B": "option", "C": "option", "D": "option"},
    launcher_args=["--option"],
    reserved_cores="6-7",
    **FACT,
)


def test_an_option_adds_to_the_sites_fields() -> None:
    found = planned(
        site(all=EVERYTHING), options=["all"], setup=["job"], env={"D": "job"}, launcher={"args": ["--job"]}
    )
    assert found.setup == ["site", "first", "job", "last"]
    assert found.site_teardown == ["down", "site down"], "what began last ends first"
    assert {name: found.variables[name] for name in "ABCD"} == {
        **{"A": "site", "B": "option", "C": "option", "D": "job"},
    }
    assert found.start[-3:] == ["--site", "--option", "--job"]
    assert found.cpu_lists == ["1-5"]
    assert "all: d" in found.notes


def test_without_it_nothing_changes() -> None:
    at = site(all=EVERYTHING)
    assert planned(at) == planned(msgspec.structs.replace(at, options={}))
    assert planned(at).cpu_lists == ["1-7"]
    assert with_options(at, ["other"]) == at


def test_a_site_may_choose_for_all_jobs_and_a_job_otherwise() -> None:
    other = Option(env={"E": "other"}, **FACT)
    at = msgspec.structs.replace(
        site(all=EVERYTHING, other=other), defaults=JobSpec.of({"command": ["x"], "options": ["all"]})
    )
    assert planned(at).variables["C"] == "option"
    assert "C" not in planned(at, options=["other"]).variables


def test_named_twice_it_counts_once() -> None:
    assert planned(site(all=EVERYTHING), options=["all", "all"]).setup == ["site", "first", "last"]


class TestRefused:
    def test_one_that_is_not_there(self) -> None:
        at = site(copper=EVERYTHING, proxy=EVERYTHING)
        assert refused(at, options=["proxy", "coper"]) == {
            "options.1": "is 'coper', which is not an option of there; did you mean copper?"
        }
        assert refused(at, options=["xyz"])["options.0"].endswith("; there are: copper, proxy")

    def test_where_there_is_none(self) -> None:
        assert refused(Site.load("slurm"), options=["proxy"]) == {
            "options.0": "is 'proxy', which is not an option of slurm; it has none: drop it"
        }

    def test_this_machine_needs_none(self) -> None:
        """So that a job file for a cluster can be tried here."""
        found = planned(Site.load("local"), options=["proxy"])
        assert "options: only affects jobs of a scheduler, and has no effect here" in found.notes

    @pytest.mark.parametrize(("field", "value"), [("ranks_per_node", 12), ("ranks", 24)])
    def test_other_ranks_than_it_is_made_for(self, field: str, value: int) -> None:
        found = refused(Site.load("aurora"), **{**GOOD, "options": ["ccs"], field: value})
        assert found == {field: f"is {value}, but the option ccs is made for 48 ranks on each node: drop one"}


class TestAuroras:
    def test_ccs(self) -> None:
        found = planned(Site.load("aurora"), **GOOD, options=["ccs"])
        assert (found.ranks, found.layout) == (48, [(48, 1)])
        assert found.variables["ZEX_NUMBER_OF_CCS"] == ",".join(f"{tile}:4" for tile in range(12))
        assert found.devices.per_rank == [str(rank // 4) for rank in range(48)]

    @pytest.mark.parametrize("ranks", [12, 24])
    def test_copper_leaves_its_cores_free(self, ranks: int) -> None:
        found = planned(Site.load("aurora"), **GOOD, options=["copper"], ranks_per_node=ranks)
        assert found.cpu_lists[ranks // 2 - 1].endswith({12: "42", 24: "36"}[ranks])

    def test_the_minimal_set_is_there_without_any(self) -> None:
        env = planned(Site.load("aurora"), **GOOD).variables
        assert env["CCL_PROCESS_LAUNCHER"] == "pmix" and env["CCL_ATL_TRANSPORT"] == "mpi"
        assert env["CCL_KVS_MODE"] == "mpi" and env["FI_MR_CACHE_MONITOR"] == "userfaultfd"
        assert "CCL_BCAST" not in env

    @pytest.mark.parametrize("name", Site.load("aurora").options)
    def test_each_can_be_had_alone(self, name: str) -> None:
        assert planned(Site.load("aurora"), **GOOD, options=[name])

    @pytest.mark.parametrize(
        ("fields", "masks"),
        [
            ({}, "0.0 0.1 1.0 1.1 2.0 2.1 3.0 3.1 4.0 4.1 5.0 5.1"),
            ({"ranks_per_node": 6}, "0.0 1.0 2.0 3.0 4.0 5.0"),
            ({"devices_per_rank": 2}, "0.0,0.1 1.0,1.1 2.0,2.1 3.0,3.1 4.0,4.1 5.0,5.1"),
        ],
    )
    def test_tiles_of_composite_devices(self, fields: dict[str, Any], masks: str) -> None:
        """No mask holds a number of FLAT's, which go up to 11 where there are six devices."""
        found = planned(Site.load("aurora"), **GOOD, options=["composite"], **fields)
        assert (found.devices.per_rank, found.devices.step) == (masks.split(), 0)
        assert found.env["ZE_FLAT_DEVICE_HIERARCHY"] == "COMPOSITE", "after setup, where a module sets FLAT"

    @pytest.mark.parametrize(
        ("fields", "place", "words"),
        [
            (
                {"command": ["./gpu_tile_compact.sh", "python", "x.py"]},
                "command.0",
                "starts gpu_tile_compact.sh",
            ),
            ({"command": ["bash", "-c", "/soft/gpu_dev_compact.sh ./a.out"]}, "command.2", "starts gpu_dev"),
            ({"launcher": {"args": ["--gpu-bind=list:0.0:0.1"]}}, "launcher.args.0", "is --gpu-bind: "),
            (
                {"env": {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}},
                "env.ZE_FLAT_DEVICE_HIERARCHY",
                "is COMPOSITE",
            ),
            ({"setup": ["export ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE"]}, "setup", "sets ZE_FLAT_DEVICE_HIER"),
        ],
    )
    def test_what_works_with_composite_devices_alone(
        self, fields: dict[str, Any], place: str, words: str
    ) -> None:
        ((found, message),) = refused(Site.load("aurora"), **{**GOOD, **fields}).items()
        assert found == place and words in message
        assert "options: [composite]" in message or "options=[composite]" in message
        given = planned(Site.load("aurora"), **{**GOOD, **fields}, options=["composite"])
        shown = {"step": 0} if "launcher" in fields else {"per_rank": 12}
        assert given.devices.step == 0 and len(given.devices.per_rank) == shown.get("per_rank", 0)

    def test_what_composite_devices_exclude(self) -> None:
        own = {"env": {"ZE_FLAT_DEVICE_HIERARCHY": "FLAT"}, "options": ["composite"]}
        (place,) = refused(Site.load("aurora"), **GOOD, **own)
        assert place == "env.ZE_FLAT_DEVICE_HIERARCHY"
        assert {"options.0"} == {*refused(Site.load("aurora"), **GOOD, options=["composite", "ccs"])}
        (place,) = refused(Site.load("aurora"), **GOOD, options=["composite"], launcher={"torchrun": True})
        assert place == "launcher.torchrun"

    def test_daos_needs_its_flag_of_mpiexec(self) -> None:
        asked = {**GOOD, "directives": {"pbs": {"filesystems": "home:daos_user_fs"}}}
        ((place, message),) = refused(Site.load("aurora"), **asked).items()
        assert (
            place == "directives.pbs.filesystems" and "names daos_user_fs: DAOS requires --no-vni" in message
        )
        for fields in ({"options": ["no-vni"]}, {"options": ["dfuse"]}, {"launcher": {"args": ["--no-vni"]}}):
            assert "--no-vni" in planned(Site.load("aurora"), **asked, **fields).start

    def test_a_queue_on_request_is_no_alternative(self) -> None:
        wide = {**GOOD, "nodes": 20, "queue": "capacity"}
        assert "visualization" not in refused(Site.load("aurora"), **wide)["queue"]
