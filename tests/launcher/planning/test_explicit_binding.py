"""The cores of each rank, as the job itself names them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.config.site_fields import Node
from launcher.errors import InvalidInput
from launcher.launchers.base import Layout, Request
from launcher.launchers.commands import LAUNCHERS
from launcher.planning.planner import plan
from launcher.runs.plan import Plan

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
    assert (found.cores_per_rank, found.env["OMP_NUM_THREADS"]) == (4, "4")
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
        (
            {"binding": "4:5", "launcher": {"name": "openmpi"}},
            "cannot be passed to openmpi; srun, pals, hydra",
        ),
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
SIX_AND_SIX = ":".join(f"{first}-{first + 7}" for first in (*range(1, 48, 8), *range(53, 100, 8)))
ON_ONE_SOCKET = ":".join(f"{first}-{first + 3}" for first in range(1, 48, 4))


def args(*words: str) -> dict[str, Any]:
    return {"launcher": {"args": list(words)}}


@pytest.mark.parametrize(
    ("site", "fields"),
    [
        ("polaris", {"binding": ON_POLARIS}),
        ("polaris", {"binding": "0-15:16-31", "ranks_per_node": 2}),
        ("polaris", {"binding": THE_OTHER_WAY, "devices_per_rank": 0, "ranks_per_node": 4}),
        ("polaris", args("--depth=8", "--cpu-bind", "depth")),  # ALCF's own example
        ("polaris", args("--cpu-bind", f"verbose,list:{ON_POLARIS}")),
        ("polaris", args("--cpu-bind=none")),
        ("aurora", {"binding": SIX_AND_SIX}),
        ("aurora", args(f"--cpu-bind=list:{SIX_AND_SIX}")),
        ("perlmutter", {"binding": "0-15:16-31:32-47:48-63"}),
        ("perlmutter", args("--cpu-bind=map_cpu:0,80,32,0x30")),  # 80 is core 16's second thread
        ("perlmutter", args("--cpu-bind=v,cores")),
        ("frontier", {"binding": "1:2:3:4:5:6:7:9"}),  # srun shows each rank the device beside its cores
        ("perlmutter", {"binding": THE_OTHER_WAY, **args("--gpu-bind=closest")}),  # the same
        ("pbs", {"binding": "4-7:8-11", **WHOLE}),  # nobody knows which device is where
    ],
)
def test_cores_beside_the_devices(site: str, fields: dict[str, Any]) -> None:
    base = BASES.get(site, {})
    assert planned(site, **{**base, **fields}).start


@pytest.mark.parametrize(
    ("site", "fields", "field", "words"),
    [
        ("polaris", {"binding": THE_OTHER_WAY}, "binding", "local rank 0 to cores 24-31"),
        (
            "polaris",
            {"binding": THE_OTHER_WAY},
            "binding",
            "local rank 0 device 3, which is beside cores 0-7",
        ),
        ("polaris", {"binding": THE_OTHER_WAY}, "binding", "so it is for 4 of 4 ranks: drop it"),
        (
            "polaris",
            {"binding": THE_OTHER_WAY},
            "binding",
            f"beside its device ({ON_POLARIS}); or use `devices_",
        ),
        ("polaris", {"binding": "0-7:16-23:8-15:24-31"}, "binding", "local rank 1 to cores 16-23"),
        ("polaris", args("--cpu-bind", "depth"), "launcher.args", "local rank 1 to cores 1 (depth)"),
        ("polaris", args("--cpu-bind", f"list:{THE_OTHER_WAY}"), "launcher.args", "for 4 of 4 ranks"),
        (
            "polaris",
            args("--cpu-bind", "numa"),
            "launcher.args",
            "by numa, from which castoff cannot derive their cores",
        ),
        (
            "aurora",
            {"binding": ON_ONE_SOCKET},
            "binding",
            "local rank 6 device 6, which is beside cores 52-103",
        ),
        ("perlmutter", args("--cpu-bind=map_cpu:48,32,16,0"), "launcher.args", "rank 0 to cores 48"),
        ("perlmutter", args("--cpu-bind=mask_cpu:0xff000000000000,1,1,1"), "launcher.args", "cores 48-55"),
        (
            "perlmutter",
            args("--cpu-bind=map_ldom:3,2,1,0"),
            "launcher.args",
            "from which castoff cannot derive",
        ),
    ],
)
def test_cores_on_the_other_side_of_the_node(
    site: str, fields: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        planned(site, **{**BASES.get(site, {}), **fields})
    assert [problem.path for problem in caught.value.problems] == [field]
    assert words in caught.value.problems[0].message


def test_a_site_that_binds_otherwise_is_reported_so() -> None:
    site = msgspec.structs.replace(Site.load("polaris"), launcher_args=[f"--cpu-bind=list:{THE_OTHER_WAY}"])
    with pytest.raises(InvalidInput, match=r"site polaris: launcher_args: binds local rank 0 to cores 24-31"):
        planned(site, **POLARIS)


@pytest.mark.parametrize(
    ("site", "fields", "step", "visible"),
    [
        ("perlmutter", {}, 1, "3,2,1,0"),
        ("perlmutter", args("--gpu-bind=none"), 1, "3,2,1,0"),
        ("perlmutter", args("--gpu-bind=verbose,closest"), 0, None),
        ("perlmutter", args("--gpu-bind", "single:1"), 0, None),
        ("perlmutter", {"directives": {"gpu-bind": "closest"}}, 0, None),
        ("slurm", {"devices_per_rank": 1, **WHOLE}, 1, None),
        ("slurm", {"devices_per_rank": 1, **WHOLE, **args("--gpus-per-task=1")}, 0, None),
        ("frontier", {}, 0, None),
    ],
)
def test_flags_that_show_each_rank_its_own_devices(
    site: str, fields: dict[str, Any], step: int, visible: str | None
) -> None:
    """A mask over these, or an index beyond the first, would name devices that a rank does not see."""
    found = planned(site, **BASES.get(site, {}), **fields).devices
    assert (found.step, found.visible) == (step, visible)


def test_mpichs_own_mpiexec_binds_so(system_program: Callable[[str, str], Path]) -> None:
    first, *_, last = *sorted(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    request = Request(
        Layout([(2, 1)]), 1, [str(last), str(first)], 0, 0, Site.load("pbs"), explicit_binding=True
    )
    program = str(system_program("mpiexec.mpich", "mpich"))
    shell = "echo $PMI_RANK $(grep Cpus_allowed_list /proc/self/status)"
    words = [program, *LAUNCHERS["hydra"].argv(request)[1:], "sh", "-c", shell]
    reported = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    assert sorted(reported.splitlines()) == [f"0 Cpus_allowed_list: {last}", f"1 Cpus_allowed_list: {first}"]
