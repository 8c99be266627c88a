"""The cores of each rank, as the job itself names them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import InvalidInput
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning.planner import plan
from castoff.launcher.runs.plan import Plan

CHARGED: dict[str, Any] = {"account": "m1234", "walltime": "30m"}
AURORA: dict[str, Any] = {"account": "a", "walltime": "30m", "directives": {"filesystems": "home"}}
NO_TILES: dict[str, Any] = {**AURORA, "devices_per_rank": 0}
POLARIS: dict[str, Any] = {**AURORA, "queue": "preemptable"}
BASES = {"polaris": POLARIS, "aurora": AURORA, "perlmutter": CHARGED, "frontier": CHARGED}
WHOLE: dict[str, Any] = {"ranks_per_node": 2, "exclusive": True}


def planned(site: Site | str, **fields: Any) -> Plan:
    at = Site.load(site) if isinstance(site, str) else site
    return plan(JobSpec.of({"command": ["x"], **fields}), at)


def refused(site: Site | str, **fields: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        planned(site, **fields)
    return " | ".join(problem.message for problem in caught.value.problems if problem.path == "binding")


@pytest.mark.parametrize(
    ("site", "launcher", "words"),
    [
        ("slurm", "srun", ["--cpu-bind=mask_cpu:0xf0,0xf00"]),
        ("pbs", "pals", ["--cpu-bind", "list:4-7:8-11"]),
        ("pbs", "hydra", ["-bind-to", "user:4+5+6+7,8+9+10+11"]),
        ("pbs", "intelmpi", ["-genv", "I_MPI_PIN_DOMAIN", "[0xf0,0xf00]"]),
    ],
)
def test_in_each_launchers_words(site: str, launcher: str, words: list[str]) -> None:
    found = planned(site, binding="4-7:8-11", launcher={"name": launcher}, **WHOLE)
    at = found.start.index(words[0])
    assert found.start[at : at + len(words)] == words
    assert (found.cores_per_rank, found.variables["OMP_NUM_THREADS"]) == (4, "4")
    assert not {*words} & {*planned(site, launcher={"name": launcher}, **WHOLE).start}


def test_on_aurora_it_replaces_the_sites_choice() -> None:
    lists = [f"{first}-{first + 3}" for first in (*range(4, 28, 4), *range(56, 80, 4))]
    found = planned("aurora", binding=":".join(lists), **AURORA)
    assert found.start.count("--cpu-bind") == 1
    assert found.start[found.start.index("--cpu-bind") + 1] == f"list:{':'.join(lists)}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"binding": "4-7"}, "has 1 lists, but a node has 2 ranks: write one for each"),
        ({"binding": "4-7:7-9"}, "names 7 more than once"),
        ({"binding": "4-7:8-12"}, "names 12, but a node's cores are 0-11 (lscpu, 2026-11-20)"),
        ({"binding": "0-3:4-7"}, "names 0, which slurm keeps for the system (lscpu, 2026-11-20)"),
        ({"binding": "7-4:8"}, "holds 7-4, which descends: write the smaller number first"),
        ({"binding": "4,7-6:8"}, "holds 7-6, which descends"),
        ({"binding": "0-9999:4"}, "names 12-9999, but a node's cores are 0-11 (lscpu, 2026-11-20)"),
        ({"binding": "4:5", "exclusive": False}, "use `exclusive: true`"),
        ({"binding": "4-7:8-11", "cores_per_rank": 2}, "gives a rank 4 cores, but cores_per_rank is 2"),
        ({"binding": "4:5", "launcher": {"torchrun": True}}, "here torchrun starts them"),
        ({"binding": "4:5", "launcher": {"args": ["--cpu-bind=cores"]}}, "launcher.args binds ranks, too"),
    ],
)
def test_what_cannot_be(fields: dict[str, Any], words: str) -> None:
    node = Node(sockets=["0-11"], reserved_cores="0", source="lscpu", date="2026-11-20")
    at = msgspec.structs.replace(Site.load("slurm"), node=node)
    assert words in refused(at, **{**WHOLE, **fields})


def test_a_list_as_long_as_may_be() -> None:
    """Where the site knows no cores, nothing bounds it but the numbers: it takes no quadratic time."""
    lists = ["0-4999", "5000-9999"]
    assert planned("slurm", binding=":".join(lists), **WHOLE).cores_per_rank == 5000


def test_the_local_scheduler_reports_that_it_ignores_a_binding() -> None:
    assert [note for note in planned("local", binding="0").notes if note.startswith("binding: ")]


@pytest.mark.parametrize(
    ("site", "fields", "flag", "words"),
    [
        ("aurora", {**NO_TILES, "launcher": {"args": ["--cpu-bind", "depth"]}}, "--cpu-bind", ["depth"]),
        ("aurora", {**NO_TILES, "launcher": {"args": ["--cpu-bind=verbose,depth"]}}, "--cpu-bind", []),
        ("perlmutter", {**CHARGED, "launcher": {"args": ["--cpu-bind=none"]}}, "--cpu-bind", []),
        ("perlmutter", {**CHARGED, "binding": "0-15:16-31:32-47:48-63"}, "--cpu-bind", []),
        ("pbs", {"launcher": {"name": "openmpi", "args": ["--bind-to", "core"]}}, "--bind-to", ["core"]),
    ],
)
def test_nothing_is_bound_twice(site: str, fields: dict[str, Any], flag: str, words: list[str]) -> None:
    found = planned(site, **fields).start
    (at,) = [at for at, word in enumerate(found) if word.partition("=")[0] == flag]
    assert found[at + 1 :][: len(words)] == words
    args = fields.get("launcher", {}).get("args", [])
    assert found[len(found) - len(args) :] == args
    assert "list:" not in " ".join(found) and "none" not in found


ON_POLARIS = "0-7:8-15:16-23:24-31"
THE_OTHER_WAY = "24-31:16-23:8-15:0-7"
# Of ALCF's guide to Aurora: 12 ranks, on the page about PyTorch, on that about Copper, whose ranks alternate
# between the sockets, one core each for oneCCL; 6 ranks; 12 with both hardware threads of each core.
TWELVE = ":".join(f"{first}-{first + 7}" for first in (*range(1, 48, 8), *range(53, 100, 8)))
PYTORCH = ":".join(f"{first}-{first + 3}" for first in (*range(4, 28, 4), *range(56, 80, 4)))
COPPER = "4:56:9:61:14:66:19:71:20:74:25:79"
ONECCL = "4:9:14:19:20:25:56:61:66:71:74:79"
SIX = "1-16:17-32:33-48:53-68:69-84:85-100"
THREADS = ":".join(
    f"{first}-{first + 3},{first + 104}-{first + 107}" for first in (*range(1, 25, 4), *range(53, 77, 4))
)
TWENTY_FOUR = ":".join(f"{first}-{first + 3}" for first in (*range(1, 48, 4), *range(53, 100, 4)))
ON_ONE_SOCKET = ":".join(f"{first}-{first + 3}" for first in range(1, 48, 4))


def args(*words: str) -> dict[str, Any]:
    return {"launcher": {"args": list(words)}}


def at_aurora(lists: str) -> list[dict[str, Any]]:
    """The same said in each way that there is."""
    ranks = {"ranks_per_node": lists.count(":") + 1}
    return [
        {"binding": lists, **ranks},
        {**args("--cpu-bind", f"list:{lists}"), **ranks},
        {**args(f"--cpu-bind=verbose,list:{lists}"), **ranks},
    ]


def used(found: Plan) -> list[str]:
    """The devices of each local rank, by their numbers on the node."""
    node, ranks = found.devices, found.layout[0][0]
    if node.per_rank:
        return node.per_rank
    assert node.step == 1
    return node.visible.split(",") if node.visible else [*map(str, range(ranks))]


@pytest.mark.parametrize(
    ("lists", "tiles"),
    [
        (TWELVE, "0 1 2 3 4 5 6 7 8 9 10 11"),
        (PYTORCH, "0 1 2 3 4 5 6 7 8 9 10 11"),
        (ONECCL, "0 1 2 3 4 5 6 7 8 9 10 11"),
        (THREADS, "0 1 2 3 4 5 6 7 8 9 10 11"),
        (COPPER, "0 6 1 7 2 8 3 9 4 10 5 11"),
        (SIX, "0 2 4 6 8 10"),
        ("53-68:69-84:85-100:1-16:17-32:33-48", "6 8 10 0 2 4"),
        ("1-8:9-16:17-24:53-60", "0 2 4 6"),
        ("1-8:157-164", "0 6"),  # second threads of cores 53 to 60
        ("1-51,53-103", "0"),
    ],
)
def test_auroras_tiles_follow_the_cores(lists: str, tiles: str) -> None:
    for fields in at_aurora(lists):
        assert " ".join(used(planned("aurora", **AURORA, **fields))) == tiles, fields


def test_ranks_that_share_a_tile_are_beside_it() -> None:
    for fields in at_aurora(TWENTY_FOUR):
        assert used(planned("aurora", **AURORA, **fields)) == [str(rank // 2) for rank in range(24)]


def test_depth_leaves_the_systems_cores_out() -> None:
    """As the guide shows it: the seventh of twelve ranks has cores of both sockets."""
    found = planned("aurora", **AURORA, **args("--depth=8", "--cpu-bind=depth"))
    assert used(found) == [str(rank) for rank in range(12)]
    with pytest.raises(InvalidInput, match=r"binds 7 ranks \(local ranks 0-6\) to cores 0-51, beside"):
        planned("aurora", **AURORA, **args("--depth=7", "--cpu-bind=depth"))


@pytest.mark.parametrize(
    ("site", "fields", "devices"),
    [
        ("polaris", {"binding": ON_POLARIS}, "3 2 1 0"),
        ("polaris", {"binding": THE_OTHER_WAY}, "0 1 2 3"),
        ("polaris", {"binding": "0-7:16-23:8-15:24-31"}, "3 1 2 0"),
        ("polaris", {"binding": "0-7,32-39:8-15,40-47:16-23,48-55:24-31,56-63"}, "3 2 1 0"),
        ("polaris", {"binding": "0-15:16-31", "ranks_per_node": 2}, "3 1"),
        ("polaris", {"binding": "16-31:0-15", "ranks_per_node": 2, "devices_per_rank": 2}, "1,0 3,2"),
        ("polaris", args("--depth=8", "--cpu-bind", "depth"), "3 2 1 0"),  # ALCF's own example
        ("polaris", args("-d", "8", "--cpu-bind", "verbose,depth"), "3 2 1 0"),
        ("polaris", args("--cpu-bind", f"verbose,list:{ON_POLARIS}"), "3 2 1 0"),
        ("polaris", args("--cpu-bind", f"list:{THE_OTHER_WAY}:0-31"), "0 1 2 3"),
        ("polaris", args("--cpu-bind=none"), "3 2 1 0"),
        ("perlmutter", {"binding": "0-15:16-31:32-47:48-63"}, "3 2 1 0"),
        ("perlmutter", {"binding": "0-15,64-79:48-63,112-127:16-31:32-47"}, "3 0 2 1"),
        ("perlmutter", args("--cpu-bind=map_cpu:0,80,32,0x30"), "3 2 1 0"),  # 80 is core 16's second thread
        ("perlmutter", args("--cpu-bind=map_cpu:48,32,16,0"), "0 1 2 3"),
        ("perlmutter", args("--cpu-bind=mask_cpu:0xffff000000000000,ffff00000000,ffff0000,ffff"), "0 1 2 3"),
        ("perlmutter", {**args("--cpu-bind=mask_cpu:0xffffffff*2,0xffffffff00000000*2")}, "3 2 1 0"),
        ("perlmutter", args("--cpu-bind=v,cores"), "3 2 1 0"),
    ],
)
def test_devices_beside_the_cores(site: str, fields: dict[str, Any], devices: str) -> None:
    assert " ".join(used(planned(site, **{**BASES[site], **fields}))) == devices


@pytest.mark.parametrize(
    ("site", "flags", "cores"),
    [
        ("aurora", ["--cpu-bind", f"list:{PYTORCH}"], 4),
        ("aurora", ["--cpu-bind", f"list:{THREADS}"], 4),
        ("aurora", ["--cpu-bind", f"list:{COPPER}"], 1),
        ("aurora", ["--cpu-bind=none"], 8),
        ("perlmutter", ["--cpu-bind=mask_cpu:0xf,0xf0000,0xf00000000,0xf000000000000"], 4),
        ("perlmutter", ["--cpu-bind=mask_cpu:0xffffffff*2,0xffffffff00000000*2"], 16),  # two ranks share 32
    ],
)
def test_a_ranks_cores_are_those_it_is_bound_to(site: str, flags: list[str], cores: int) -> None:
    found = planned(site, **BASES[site], **args(*flags))
    assert (found.cores_per_rank, found.variables["OMP_NUM_THREADS"]) == (cores, str(cores))
    if site == "perlmutter":  # all of the step's, or srun would refuse such masks
        assert "--cpus-per-task=32" in found.start


def test_devices_that_follow_a_binding_are_shown() -> None:
    notes = planned("polaris", **POLARIS, binding=THE_OTHER_WAY).notes
    assert "devices of a node's ranks, by binding: 0 1 2 3" in notes
    assert not [
        note for note in planned("polaris", **POLARIS, binding=ON_POLARIS).notes if "by binding" in note
    ]


def test_where_no_device_is_nearer_than_another() -> None:
    assert planned("pbs", binding="4-7:8-11", **WHOLE).start
    assert planned("polaris", **POLARIS, binding=THE_OTHER_WAY, devices_per_rank=0, ranks_per_node=4).start


@pytest.mark.parametrize(
    ("site", "fields", "field", "words"),
    [
        (
            "aurora",
            {"binding": ON_ONE_SOCKET},
            "binding",
            "binds 12 ranks (local ranks 0-11) to cores 0-51, beside devices 0-5, which 6 ranks can use: drop"
            f" it, and castoff binds each rank beside its device ({TWELVE}); or use `devices_per_rank: 0",
        ),
        (
            "polaris",
            args("--cpu-bind", "depth"),
            "launcher.args",
            "binds 4 ranks (local ranks 0-3) to cores 0-7, beside device 3, which 1 rank can use: drop it",
        ),
        (
            "polaris",
            {"binding": "0-3:8-11:4-7:24-27"},
            "binding",
            "binds 2 ranks (local ranks 0,2) to cores 0-7",
        ),
        (
            "perlmutter",
            args("--cpu-bind=mask_cpu:0xff000000000000,1"),
            "launcher.args",
            "(local ranks 0,2) to cores 48-63, beside device 0",
        ),
        (
            "aurora",
            args("--cpu-bind", f"list:{TWELVE.rpartition(':')[0]}"),
            "launcher.args",
            "which has 11 CPU lists, but a node has 12 ranks: write one for each",
        ),
        (
            "aurora",
            args("--cpu-bind", f"list:{TWELVE.rpartition(':')[0]}:93-208"),
            "launcher.args",
            "which names 208, but a node's cores are 0-103, and 104-207 their further hardware threads (",
        ),
        (
            "aurora",
            args("--cpu-bind=list:1-8;9-16"),
            "launcher.args",
            "which has '1-8;9-16' where a CPU list",
        ),
        ("aurora", args(f"--cpu-bind=list:8-1:{TWELVE}"), "launcher.args", "holds 8-1, which descends"),
        (
            "perlmutter",
            args("--cpu-bind=map_cpu:0,a"),
            "launcher.args",
            "which has 'a' where a number or a mask",
        ),
        (
            "aurora",
            {"binding": TWELVE, **args("--cpu-bind", f"list:{TWELVE}")},
            "binding",
            "is set twice: launcher.args binds ranks, too; keep one of the two",
        ),
    ],
)
def test_bindings_with_which_no_devices_are_right(
    site: str, fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        planned(site, **{**BASES.get(site, {}), **fields})
    assert [problem.path for problem in caught.value.problems] == [field]
    assert words in caught.value.problems[0].message


def test_devices_follow_a_sites_flags_too() -> None:
    site = msgspec.structs.replace(Site.load("polaris"), launcher_args=[f"--cpu-bind=list:{THE_OTHER_WAY}"])
    assert used(planned(site, **POLARIS)) == ["0", "1", "2", "3"]
    wrong = msgspec.structs.replace(site, launcher_args=["--cpu-bind=list:0:1:2:3"])
    with pytest.raises(InvalidInput, match=r"site polaris: launcher_args: binds 4 ranks \(local ranks 0-3\)"):
        planned(wrong, **POLARIS)


@pytest.mark.parametrize(
    ("site", "fields"),
    [
        ("polaris", args("--cpu-bind", "numa")),
        (
            "polaris",
            args("-d", "16", "--cpu-bind", "depth"),
        ),  # with hardware threads; in which order, who knows
        ("perlmutter", args("--cpu-bind=map_ldom:3,2,1,0")),
        ("perlmutter", {}),  # srun --cpu-bind=cores, by the site's flags
    ],
)
def test_ranks_whose_cores_only_the_launcher_knows_look_at_their_start(
    site: str, fields: dict[str, Any]
) -> None:
    found = planned(site, **{**BASES[site], **fields})
    node = Site.load(site).node
    assert node is not None
    assert used(found) == ["3", "2", "1", "0"]
    beside = [node.device_cores[device] for device in (3, 2, 1, 0)]
    assert [near.partition(",")[0] for near in found.devices.near] == beside
    assert planned(site, **{**BASES[site], "binding": found.devices.better}).devices.near == []


TWO_SOCKETS = Node(
    sockets=["0-23", "24-47"],
    devices=[2, 2],
    device_variable="CUDA_VISIBLE_DEVICES",
    exclusive=True,
    source="lscpu",
    date="2026-11-20",
)


def on_two_sockets(**fields: Any) -> Plan:
    node = msgspec.structs.replace(TWO_SOCKETS, **fields.pop("node", {}))
    site = msgspec.structs.replace(Site.load("slurm"), node=node, **fields.pop("site", {}))
    return planned(site, **fields)


def test_srun_would_deal_ranks_out_over_sockets_so_castoff_binds_them() -> None:
    """Ranks 0 and 2 on the first socket, 1 and 3 on the second, with the devices of 0 to 3."""
    assert "--cpu-bind=mask_cpu:0xfff,0xfff000,0xfff000000,0xfff000000000" in on_two_sockets().start
    assert "--cpu-bind=mask_cpu:0xffffff,0xffffff000000" in on_two_sockets(ranks_per_node=2).start
    assert on_two_sockets(ranks_per_node=2).devices.visible == "0,2"
    threads = on_two_sockets(ranks_per_node=2, node={"cpus_per_core": 2})
    assert threads.cpu_lists == ["0-23,48-71", "24-47,72-95"]


def test_a_step_that_is_bound_by_list_has_all_cpus_of_its_nodes() -> None:
    """With a number of CPUs for each task it would have the first ones alone; a mask of others ends it."""
    for found in (on_two_sockets(), planned("slurm", binding="4-7:8-11", **WHOLE)):
        assert not [word for word in found.start if word.startswith("--cpus-per-task")]
        assert "cpus-per-task" not in dict(found.directives)


@pytest.mark.parametrize(
    "fields",
    [
        args("--cpu-bind=cores"),
        args("--hint=nomultithread"),
        args("-m", "block:block"),
        {"directives": {"distribution": "block:block"}},
        {"directives": {"hint": "nomultithread"}},
        {"node": {"exclusive": False}},
    ],
)
def test_whoever_says_how_srun_binds_is_heeded_and_each_rank_looks(fields: dict[str, Any]) -> None:
    found = on_two_sockets(**fields)
    assert not [word for word in found.start if "mask_cpu" in word]
    if "node" not in fields:
        assert found.devices.near == ["0-23", "0-23", "24-47", "24-47"]
        assert found.devices.better == "0-11:12-23:24-35:36-47"


@pytest.mark.parametrize(
    ("site", "fields", "step", "visible", "indices"),
    [
        ("perlmutter", {}, 1, "3,2,1,0", []),
        ("perlmutter", args("--gpu-bind=none"), 1, "3,2,1,0", []),
        ("perlmutter", args("--gpu-bind=verbose,closest"), 0, None, []),
        ("perlmutter", {"binding": THE_OTHER_WAY, **args("--gpu-bind=closest")}, 0, None, []),
        (
            "perlmutter",
            {"binding": "0-31:0-31", "ranks_per_node": 2, **args("--gpu-bind=closest")},
            0,
            None,
            None,
        ),
        ("perlmutter", args("--gpu-bind", "single:1"), 0, None, []),
        ("perlmutter", args("--gpu-bind", "single:2"), 0, None, []),  # two ranks on each of two, as it says
        ("perlmutter", args("--gpu-bind=map_gpu:3,2,1,0"), 0, None, []),
        ("perlmutter", args("--gpu-bind=mask_gpu:0x3,0x3,0xc,0xc"), 0, None, [0, 1, 0, 1]),
        ("perlmutter", args("--gpu-bind=mask_gpu:0xf"), 0, None, [0, 1, 2, 3]),
        ("perlmutter", args("--gpu-bind=mask_gpu:0x1*2,0x2*2"), 0, None, []),
        ("perlmutter", {"directives": {"gpu-bind": "closest"}}, 0, None, []),
        ("slurm", {"devices_per_rank": 1, **WHOLE}, 1, None, []),
        ("slurm", {"devices_per_rank": 1, **WHOLE, **args("--gpus-per-task=1")}, 0, None, []),
        ("slurm", {"devices_per_rank": 1, **WHOLE, **args("--gpu-bind=mask_gpu:0x3")}, 0, None, [0, 1]),
        (
            "slurm",
            {"devices_per_rank": 1, **WHOLE, **args("--gpu-bind=closest")},
            1,
            None,
            [],
        ),  # as many as it sees
        ("frontier", {}, 0, None, []),
        ("frontier", {"ranks_per_node": 4}, 0, None, []),
        # Each sees a device that a neighbour sees, too, and takes the one beside most of its cores.
        ("frontier", {"ranks_per_node": 6}, 0, None, [0, 1, 1, 1, 1, 1]),
        ("frontier", {"binding": "1:2:3:4:5:6:7:9", "devices_per_rank": 1}, 0, None, []),
    ],
)
def test_flags_that_show_each_rank_some_devices(
    site: str, fields: dict[str, Any], step: int, visible: str | None, indices: list[int] | None
) -> None:
    """A mask over these, or an index beyond the first, would name devices that a rank does not see."""
    if indices is None:
        with pytest.raises(InvalidInput, match="names 0-31 more than once"):
            planned(site, **BASES.get(site, {}), **fields)
        return
    found = planned(site, **BASES.get(site, {}), **fields).devices
    assert (found.step, found.visible, found.indices) == (step, visible, indices)


def test_ranks_that_see_both_devices_of_their_socket_take_one_each() -> None:
    found = on_two_sockets(site={"gpu_bind": "closest"})
    assert found.devices.indices == [0, 1, 0, 1]
    dealt = on_two_sockets(site={"gpu_bind": "closest"}, launcher={"args": ["--cpu-bind=cores"]})
    assert (dealt.devices.step, dealt.devices.indices) == (1, [])  # who knows


def test_mpichs_own_mpiexec_binds_so(system_program: Callable[[str, str], Path]) -> None:
    first, *_, last = *sorted(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    request = Request(Layout([(2, 1)]), 1, [str(last), str(first)], 0, 0, Site.load("pbs"), by_list=True)
    program = str(system_program("mpiexec.mpich", "mpich"))
    shell = "echo $PMI_RANK $(grep Cpus_allowed_list /proc/self/status)"
    words = [program, *LAUNCHERS["hydra"].argv(request)[1:], "sh", "-c", shell]
    reported = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert sorted(reported.splitlines()) == [f"0 Cpus_allowed_list: {last}", f"1 Cpus_allowed_list: {first}"]
