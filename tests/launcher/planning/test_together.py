"""Members that share jobs, by property: how many, where, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from castoff import JobSpec, Site, plan, render
from castoff.launcher.config.quantities import cpus
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import InvalidInput
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import Facts, facts_of

SOURCE: dict[str, Any] = {"source": "lscpu", "date": "2026-11-26"}


@st.composite
def nodes(draw: st.DrawFn) -> Node | None:
    """A node with cores, devices, both or neither; None: the site does not say."""
    sockets, each = draw(st.integers(0, 2)), draw(st.integers(1, 32))
    lists = [f"{socket * each}-{socket * each + each - 1}" for socket in range(sockets)]
    devices = draw(st.lists(st.integers(0, 4), min_size=sockets or 1, max_size=sockets or 1))
    return draw(
        st.sampled_from(
            [
                None,
                Node(
                    sockets=lists,
                    devices=devices if sum(devices) else [],
                    device_variable="CUDA_VISIBLE_DEVICES" if sum(devices) else None,
                    exclusive=draw(st.booleans()),
                    source="lscpu",
                    date="2026-11-26",
                ),
            ]
        )
    )


sites = st.builds(
    lambda name, launcher, node: msgspec.structs.replace(
        Site.load(name), node=node, launcher=launcher if name == "pbs" else Site.load(name).launcher
    ),
    st.sampled_from(["slurm", "pbs", "flux"]),
    st.sampled_from(["hydra", "pals", "openmpi", "intelmpi"]),
    nodes(),
)
some = st.none() | st.integers(1, 6)
forms = (
    st.integers(1, 50)
    | st.sampled_from(["node", "job"])
    | st.builds(
        lambda **sizes: {name: size for name, size in sizes.items() if size},
        nodes=some,
        per_node=some,
    )
    | st.builds(
        lambda **sizes: {name: size for name, size in sizes.items() if size},
        members=some,
        per_node=some,
    )
)
jobs = st.builds(
    lambda count, together, most, **fields: {
        "array": {"count": count, "together": together, **({"max_concurrent": most} if most else {})},
        **{name: value for name, value in fields.items() if value is not None},
    },
    st.integers(1, 300),
    forms.filter(bool),
    some,
    nodes=st.sampled_from([1, 1, 2, 3]),
    ranks_per_node=st.integers(1, 6),
    cores_per_rank=some,
    devices_per_rank=st.none() | st.integers(0, 3),
)


def planned(site: Site, job: dict[str, Any]) -> Plan:
    """The plan, unless the job is refused: then each reason names a field of the job."""
    spec = JobSpec.of({"name": "x", "command": ["true"], "walltime": "1h", **job})
    try:
        return plan(spec, site)
    except InvalidInput as error:
        for problem in error.problems:
            assert problem.path.partition(".")[0] in JobSpec.__struct_fields__, problem
            assert problem.message
        assume(False)
        raise


@settings(max_examples=300)
@given(sites, jobs)
def test_no_two_ranks_on_a_node_have_a_core_or_a_device_in_common(site: Site, job: dict[str, Any]) -> None:
    found = planned(site, job)
    share, count = found.sharing, job["array"]["count"]
    assert share is not None
    groups = share.nodes // found.nodes
    assert share.nodes == groups * found.nodes and 1 <= share.at_once <= share.members <= count
    assert share.jobs(count) * share.members >= count
    assert groups * share.per_node >= share.at_once > (groups - 1) * share.per_node
    assert found.nodes == 1 or share.per_node == 1
    most = job["array"].get("max_concurrent")
    assert most is None or share.at_once <= most
    ranks = found.layout[0][0] * share.per_node
    places = [{*cpus(one)} for one in found.cpu_lists]
    if share.per_node > 1 and places:
        assert len(places) == ranks and len(set().union(*places)) == sum(map(len, places))
        assert job.get("cores_per_rank") is None or min(map(len, places)) >= job["cores_per_rank"]
    if share.per_node > 1 and found.devices.per_rank:  # those of its member
        assert len(found.devices.per_rank) == ranks
        size = found.layout[0][0]
        members = [{*found.devices.per_rank[first : first + size]} for first in range(0, ranks, size)]
        assert {len(masks) for masks in members} == {1}
        shown = [name for (mask,) in members for name in mask.split(",")]
        assert len({*shown}) == len(shown) == ranks * found.devices_per_rank
    if site.node and site.node.devices and found.devices_per_rank and share.per_node > 1:
        assert ranks * found.devices_per_rank <= site.node.device_count


@settings(max_examples=100)
@given(sites, jobs)
def test_a_plan_and_its_script_say_the_same(site: Site, job: dict[str, Any]) -> None:
    found = planned(site, job)
    text = msgspec.json.encode(found)
    assert msgspec.json.decode(text, type=Plan) == found
    assert msgspec.json.decode(text, type=Facts).sharing == found.sharing
    assert facts_of(render(found)).sharing == found.sharing


@settings(max_examples=100)
@given(sites, jobs)
def test_a_job_is_planned_as_one_whose_members_need_its_nodes(site: Site, job: dict[str, Any]) -> None:
    """So many node-hours are asked for, and no more."""
    found = planned(site, job)
    assert found.sharing is not None
    assert found.node_hours == found.sharing.jobs(job["array"]["count"]) * found.sharing.nodes


REFUSED = {
    "a node for a member of two": ({"nodes": 2, "array": {"count": 4, "together": "node"}}, "array.together"),
    "too few nodes": ({"nodes": 3, "array": {"count": 4, "together": {"nodes": 2}}}, "array.together"),
    "nodes and members": (
        {"array": {"count": 4, "together": {"nodes": 2, "members": 2}}},
        "array.together.members",
    ),
    "two of two nodes on a node": (
        {"nodes": 2, "array": {"count": 4, "together": {"nodes": 2, "per_node": 2}}},
        "array.together.per_node",
    ),
    "a chain": (
        {"array": {"count": 4, "together": "job"}, "requeue": {"max": 1, "how": "chain"}},
        "requeue.how",
    ),
    "a driver": ({"array": {"count": 4, "together": "job"}, "launcher": {"driver": True}}, "launcher.driver"),
    "spare nodes": (
        {"array": {"count": 4, "together": "job"}, "restart": {"max": 1, "spare_nodes": 1}},
        "restart.spare_nodes",
    ),
}


@pytest.mark.parametrize(("job", "field"), REFUSED.values(), ids=[*REFUSED])
def test_what_is_refused_names_the_field(job: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(JobSpec.of({"command": ["true"], "walltime": "1h", **job}), Site.load("pbs"))
    assert [problem.path for problem in caught.value.problems] == [field]


def test_lsf_has_none() -> None:
    spec = JobSpec.of({"command": ["true"], "array": {"count": 4, "together": 2}})
    with pytest.raises(InvalidInput, match=r"array\.together: is not supported by LSF, which lsf runs: drop"):
        plan(spec, Site.load("lsf"))


def test_on_one_machine_members_share_it_anyway() -> None:
    spec = JobSpec.of({"command": ["true"], "array": {"count": 4, "together": 2}})
    found = plan(spec, Site.load("local"))
    assert found.sharing is None and any(note.startswith("array.together: ") for note in found.notes)


def test_numbers_of_all_members_on_a_node_are_explained() -> None:
    node = Node(sockets=["0-15"], **SOURCE)
    site = msgspec.structs.replace(Site.load("pbs"), node=node)
    array = {"count": 8, "together": {"nodes": 1, "per_node": 3}}
    spec = JobSpec.of({"command": ["true"], "ranks_per_node": 6, "cores_per_rank": 1, "array": array})
    job = r"makes a job of 1 node with 18 ranks: lower its nodes or per_node \(the job's ranks_per_node is 18"
    with pytest.raises(InvalidInput, match=rf"array\.together: {job}"):
        plan(spec, site)


def with_parameters(**fields: Any) -> JobSpec:
    array = {"parameters": {"lr": [0.1, 1], "seed": [0, 1]}, "together": 2}
    job = {"command": ["train", "{lr}", "{seed}"], "array": array, "cores_per_rank": 1, "account": "a"}
    return JobSpec.of({**job, "walltime": "5m", **fields})


@pytest.mark.parametrize("site", ["slurm", "pbs"])
def test_members_that_share_jobs_have_their_parameters(site: str) -> None:
    made = plan(with_parameters(name="fit-{lr}", workdir="{seed}"), Site.load(site))
    assert made.sharing and made.array_count == 4 and made.parameters
    assert made.parameters.values(2) == {"lr": "1", "seed": "0"}
    assert (made.name, made.member_name, made.workdir) == ("fit", "fit-{lr}", "./{seed}")
    assert "fit" in " ".join(map(str, made.directives)) and "{" not in " ".join(map(str, made.directives))


def test_parameters_of_members_that_share_jobs_are_checked() -> None:
    array = {"parameters": {"folder": ["/a", "b"]}, "together": 2}
    with pytest.raises(InvalidInput, match="let all members' be absolute, or all relative"):
        plan(with_parameters(command=["train"], workdir="{folder}", array=array), Site.load("slurm"))


NODE = {"sockets": ["0-11"], "memory": "24000M", "source": "s", "date": "2026-11-20"}
QUEUES = {"main": {"ranges": [{"max_nodes": 4}], "source": "s", "date": "2026-11-20"}}
LAB = Site.load("slurm").changed(node=NODE, queues=QUEUES, default_queue="main")


@pytest.mark.parametrize(
    ("together", "fields", "path", "message"),
    [
        (
            40,
            {"cores_per_rank": 12},
            "array.together",
            "makes a job of 40 nodes with 1 rank on each: lower it (the job's queue",
        ),
        (
            {"nodes": 2, "per_node": 20},
            {},
            "array.together",
            "makes a job of 2 nodes with 20 ranks on each: ",
        ),
        ({"nodes": 1}, {"nodes": 2}, "array.together", "needs 2: write nodes: 2 or more"),
        (4, {"ranks_per_node": 13}, "ranks_per_node", "is 13, but a node has 12 cores"),
        (4, {"nodes": 5}, "queue", "does not take 5 nodes"),
    ],
)
def test_what_does_not_fit(together: Any, fields: dict[str, Any], path: str, message: str) -> None:
    """Each problem names what the user has set, not the size of the job that castoff makes of it."""
    with pytest.raises(InvalidInput) as error:
        plan(with_parameters(array={"count": 40, "together": together}, command=["train"], **fields), LAB)
    (problem,) = error.value.problems
    assert problem.path == path and message in problem.message, error.value


def test_members_share_a_nodes_memory() -> None:
    made = plan(
        with_parameters(array={"count": 40, "together": "node"}, command=["train"], memory="10G"), LAB
    )
    assert made.sharing and made.sharing.per_node == 2
    assert ("mem", "20G") in made.directives
