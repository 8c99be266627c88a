"""`select`: what chunks ask for, chunks of several kinds, and clusters of PBS that know no chunks."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning import planner
from castoff.launcher.runs.plan import Plan

NODE = {
    "sockets": ["0-23", "24-47"],
    "devices": [2, 2],
    "device_variable": "CUDA_VISIBLE_DEVICES",
    "source": "s",
    "date": "2026-11-20",
}


def site(name: str = "pbs", **changes: Any) -> Site:
    return Site.load(name).changed(**changes)


def plan(at: Site | None = None, **fields: Any) -> Plan:
    return planner.plan(JobSpec.of({"command": ["x"], **fields}), at or site())


def asked(at: Site | None = None, **fields: Any) -> dict[str, str | bool]:
    names = ("select", "place", "nodes", "ncpus", "ngpus", "mem")
    return {name: value for name, value in plan(at, **fields).directives if name in names}


def problems(at: Site | None = None, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as error:
        plan(at, **fields)
    return {problem.path: problem.message for problem in error.value.problems}


class TestResources:
    def test_they_stand_in_each_chunk(self) -> None:
        found = asked(
            nodes=2, memory="4G", select={"model": "mil_ait", "wd": True, "old": False, "note": "a b"}
        )
        chunk = 'ncpus=1:mpiprocs=1:mem=4gb:model=mil_ait:wd=true:old=false:note="a b"'
        assert found == {"select": f"2:{chunk}", "place": "scatter"}

    def test_a_jobs_stand_over_its_sites(self) -> None:
        at = site(defaults={"select": {"model": "old", "scratch_local": "10gb"}})
        found = asked(at, select={"model": "new", "scratch_local": None, "gpu_mem": "16gb"})
        assert found["select"] == "1:ncpus=1:mpiprocs=1:model=new:gpu_mem=16gb"
        assert asked(at)["select"] == "1:ncpus=1:mpiprocs=1:model=old:scratch_local=10gb"

    def test_a_type_of_device(self) -> None:
        typed: dict[str, Any] = {"devices_per_rank": 1, "device_type": "a100"}
        at = site(device_type_resource="accelerator_model")
        chunk = "ncpus=1:mpiprocs=1:ngpus=1:accelerator_model=a100"
        assert asked(at, **typed)["select"] == f"1:{chunk}"
        kinds = [{"nodes": 1, "devices_per_node": 0}, {"nodes": 2, "devices_per_node": 1}]
        found = asked(at, select=kinds, **{**typed, "devices_per_rank": 0})["select"]
        assert found == f"1:ncpus=1:mpiprocs=1+2:{chunk}", "a chunk without devices has no type"
        torque = site(request_form="nodes", requested_resources=["ncpus", "ngpus"])
        assert asked(torque, **typed)["nodes"] == "1:ppn=1:gpus=1:a100"

    def test_a_type_of_device_that_pbs_cannot_be_asked_for(self) -> None:
        typed: dict[str, Any] = {"devices_per_rank": 1, "device_type": "a100"}
        message = problems(site(), **typed)["device_type"]
        assert "write `device_type_resource: NAME` in its profile" in message
        assert "select: {NAME: a100}" in message
        totals = site(request_form="totals", requested_resources=["ncpus"])
        assert "`directives: {NAME: a100}`" in problems(totals, **typed)["device_type"]
        at = site(device_type_resource="gpu_type")
        assert (
            "device_type (a100): drop one"
            in problems(at, select={"GPU_type": "v100"}, **typed)["select.GPU_type"]
        )

    def test_ompthreads_is_what_ranks_get(self) -> None:
        assert plan(select={"ompthreads": "4"}, cores_per_rank=8).variables["OMP_NUM_THREADS"] == "4"
        own = plan(select={"ompthreads": "4"}, env={"OMP_NUM_THREADS": "2"})
        assert own.variables["OMP_NUM_THREADS"] == "2"

    @pytest.mark.parametrize(
        ("select", "message"),
        [
            (
                {"ncpus": "8"},
                "is 8, but castoff has a field for that: write each rank's part as cores_per_rank",
            ),
            ({"NGPUS": "2"}, "write each rank's part as devices_per_rank"),
            ({"Mem": "8gb"}, "is 8gb, but castoff has a field for that: write it as memory"),
            ({"mpiprocs": "2"}, "write it as ranks_per_node"),
            ({"walltime": "1h"}, "write it as walltime"),
            ({"nodes": "2"}, "is a field of castoff, not a resource: write nodes beside select, not in it"),
            (
                {"filesystems": "home"},
                "a resource of the whole job, not of a chunk; use `directives: {filesystems",
            ),
            ({"note": "it's"}, 'is "it\'s", but PBS takes plain ASCII without quotes'),
            ({"note": "é"}, "but PBS takes plain ASCII"),
        ],
    )
    def test_what_no_chunk_asks_for(self, select: dict[str, Any], message: str) -> None:
        found = problems(select=select)
        assert found.keys() == {f"select.{next(iter(select))}"}
        assert message in next(iter(found.values()))

    def test_pbs_does_not_tell_capitals(self) -> None:
        assert (
            "says the same as gpu_mem"
            in problems(select={"gpu_mem": "1gb", "GPU_Mem": "2gb"})["select.GPU_Mem"]
        )

    def test_a_resource_of_chunks_among_directives(self) -> None:
        at = site(defaults={"select": {"scratch_local": "10gb"}})
        found = problems(at, directives={"scratch_local": "20gb", "host": "n1"})
        assert "use `select: {scratch_local: 20gb}`" in found["directives.scratch_local"]
        assert "set select instead" in found["directives.host"]

    def test_text_is_refused_with_what_to_write(self) -> None:
        with pytest.raises(
            InvalidInput, match=r"takes resources by their names, as in \{model: mil_ait\}, beside"
        ):
            JobSpec.of({"command": ["x"], "select": "2:ncpus=8"})

    @pytest.mark.parametrize(
        ("name", "fix"), [("slurm", "write constraint, as"), ("flux", "write constraint, as")]
    )
    def test_other_schedulers_refuse_them(self, name: str, fix: str) -> None:
        assert fix in problems(site(name), select={"model": "x"})["select"]

    def test_one_machine_has_no_use_for_them(self) -> None:
        found = plan(site("local"), select={"model": "x"})
        assert "select: only affects jobs of a scheduler, and has no effect here" in found.notes

    def test_a_site_adds_to_every_chunk(self) -> None:
        with pytest.raises(InvalidInput, match=r"defaults\.select: is a list, but a site's resources"):
            site(defaults={"select": [{"model": "x"}]})
        with pytest.raises(InvalidInput, match=r"defaults\.select\.memory: is a field of castoff"):
            site(defaults={"select": {"memory": "4G"}})


CPU = {"ranks_per_node": 1, "memory": "64G", "model": "cpu"}
GPU = {"nodes": "3", "ranks_per_node": "4", "model": "gpu"}


class TestKinds:
    def test_each_asks_for_its_own(self) -> None:
        at = site(defaults={"select": {"model": "any", "scratch_local": "1gb"}})
        found = plan(at, select=[CPU, GPU], cores_per_rank=2, memory="8G", walltime="1h")
        assert dict(found.directives)["select"] == (
            "1:ncpus=2:mpiprocs=1:mem=64gb:model=cpu:scratch_local=1gb+"
            "3:ncpus=8:mpiprocs=4:mem=8gb:model=gpu:scratch_local=1gb"
        )
        assert (found.nodes, found.ranks, found.layout, found.node_hours) == (4, 13, [(1, 1), (4, 3)], 4.0)

    def test_the_jobs_ranks_count_where_a_kind_says_none(self) -> None:
        found = plan(
            ranks_per_node=2, select=[{"host": "n3"}, {"nodes": 2, "ranks_per_node": 2}, {"host": "n1"}]
        )
        assert found.layout == [(2, 4)], "neighbours that are alike are one group"

    def test_cores_of_their_own(self) -> None:
        found = plan(select=[{"cores_per_rank": 2}, {"ranks_per_node": 2, "cores_per_rank": 8}])
        assert dict(found.directives)["select"] == "1:ncpus=2:mpiprocs=1+1:ncpus=16:mpiprocs=2"
        assert found.variables["OMP_NUM_THREADS"] == "2", "one number for all ranks, which none exceeds"

    def test_devices_follow_the_ranks(self) -> None:
        found = asked(devices_per_rank=1, select=[{"ranks_per_node": 1}, {"ranks_per_node": 4}])
        assert found["select"] == "1:ncpus=1:mpiprocs=1:ngpus=1+1:ncpus=4:mpiprocs=4:ngpus=4"

    def test_devices_of_their_own_only_where_castoff_numbers_none(self) -> None:
        kinds = [{"devices_per_node": 0}, {"ranks_per_node": 4, "devices_per_node": 4}]
        found = asked(select=kinds)
        assert found["select"] == "1:ncpus=1:mpiprocs=1+1:ncpus=4:mpiprocs=4:ngpus=4"
        refused = problems(select=kinds, devices_per_rank=1)
        assert refused.keys() == {"select.0.devices_per_node", "select.1.devices_per_node"}
        assert "is 4, but castoff gives every rank 1" in refused["select.1.devices_per_node"]

    def test_devices_of_whole_nodes(self) -> None:
        at = site(node={**NODE, "exclusive": True})
        found = asked(at, select=[{"ranks_per_node": 1}, {"nodes": 2}])
        assert str(found["select"]).count("ngpus=4") == 2

    def test_torchrun_is_one_process_a_node(self) -> None:
        found = plan(select=[CPU, GPU], cores_per_rank=2, launcher={"torchrun": True})
        select = str(dict(found.directives)["select"])
        assert select.startswith("1:ncpus=2:mpiprocs=1:") and "+3:ncpus=8:mpiprocs=1:" in select

    @pytest.mark.parametrize(
        ("fields", "field", "message"),
        [
            ({"nodes": 2}, "nodes", "excludes select as a list"),
            ({"ranks": 8}, "ranks", "excludes select as a list"),
            (
                {"select": [{"nodes": "two"}]},
                "select.0.nodes",
                "is 'two', but takes a whole number of at least 1",
            ),
            ({"select": [{"nodes": 0}]}, "select.0.nodes", "takes a whole number of at least 1"),
            (
                {"select": [CPU, {"memory": "64gb"}]},
                "select.1.memory",
                "takes a size with a unit K, M, G or T",
            ),
            ({"select": [CPU, {"ngpus": 1}]}, "select.1.ngpus", "write it as devices_per_node"),
            ({"select": [CPU, {"ompthreads": 1}]}, "select.1.ompthreads", "write it in env"),
        ],
    )
    def test_what_cannot_be(self, fields: dict[str, Any], field: str, message: str) -> None:
        found = problems(**{"select": [CPU, GPU], **fields})
        assert found.keys() == {field} and message in found[field]

    def test_a_launcher_that_fills_node_after_node(self) -> None:
        pals = {"name": "pals"}
        assert "pals fills node after node with 4" in problems(select=[CPU, GPU], launcher=pals)["select"]
        assert plan(select=[GPU, {"ranks_per_node": 1}], launcher=pals).layout == [(4, 3), (1, 1)]
        assert "select" in problems(select=[{"ranks_per_node": 1}, {"ranks_per_node": 4}], launcher=pals)

    def test_limits_count_all_nodes(self) -> None:
        queue = {"ranges": [{"max_nodes": 3}], "source": "s", "date": "2026-11-20"}
        at = site(queues={"small": queue})
        assert "does not take 4 nodes" in problems(at, queue="small", select=[CPU, GPU])["queue"]

    def test_one_machine_is_one_node(self) -> None:
        assert "is not" not in "".join(
            plan(site("local"), select=[{"ranks_per_node": 1}, {"nodes": 2}]).notes
        )


TOTALS: dict[str, Any] = {"request_form": "totals", "requested_resources": ["ncpus", "ngpus", "mem"]}


class TestOtherForms:
    def test_one_node(self) -> None:
        at = site(request_form="ncpus")
        fields: dict[str, Any] = {
            "ranks_per_node": 2,
            "cores_per_rank": 4,
            "devices_per_rank": 1,
            "memory": "16G",
        }
        assert asked(at, **fields) == {"ncpus": "8", "ngpus": "2", "mem": "16gb"}
        assert "which gives a job one node" in problems(at, nodes=2)["nodes"]

    def test_totals_of_whole_nodes(self) -> None:
        at = site(node=NODE, **TOTALS)
        assert asked(at, memory="190G") == {"ncpus": "48", "ngpus": "4", "mem": "190gb"}
        assert asked(at, ranks_per_node=1) == {"ncpus": "48", "ngpus": "1"}
        assert asked(at, nodes=3, memory="190G", cores_per_rank=1) == {
            "ncpus": "144",
            "ngpus": "12",
            "mem": "570gb",
        }
        assert "write node.sockets in its profile" in problems(site(**TOTALS), nodes=2)["nodes"]

    def test_nodes_with_their_processors(self) -> None:
        at = site(request_form="nodes")
        fields: dict[str, Any] = {"nodes": 2, "ranks_per_node": 2, "cores_per_rank": 4, "memory": "16G"}
        assert asked(at, **fields) == {"nodes": "2:ppn=8", "mem": "32gb"}
        found = asked(at, **fields, devices_per_rank=1, select={"a100": True, "disk": "ssd"})
        assert found["nodes"] == "2:ppn=8:gpus=2:a100:disk=ssd"
        assert "for features that nodes have" in problems(at, select={"a100": False})["select.a100"]
        kinds = [{"memory": "1G", "big": True}, {"nodes": 2, "ranks_per_node": 4, "memory": "512M"}]
        assert asked(at, select=kinds) == {"nodes": "1:ppn=1:big+2:ppn=4", "mem": "2048mb"}

    @pytest.mark.parametrize("form", ["ncpus", "totals", "nodes"])
    def test_what_they_cannot_say(self, form: str) -> None:
        at = site(request_form=form)
        found = problems(at, exclusive=True, directives={"place": "scatter"})
        assert "which cannot ask for it" in found["exclusive"]
        assert "with which qsub takes no place" in found["directives.place"]

    @pytest.mark.parametrize("form", ["ncpus", "totals"])
    def test_chunks_where_there_are_none(self, form: str) -> None:
        found = problems(site(request_form=form), select={"jobfs": "200gb", "wd": True})
        assert found["select"].endswith("use `directives: {jobfs: 200gb, wd: true}`, for the whole job")


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = problems(select={"note": "it's"}, directives={"j": None, "W": "umask"})
    assert found.keys() == {"select.note", "directives.j", "directives.W"}
