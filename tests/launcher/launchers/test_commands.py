"""Layouts, and the argv that asks each launcher for one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.schedulers.registry import NAMES, scheduler_of

SLURM = Site(name="s", description="d", scheduler="slurm", launcher="srun", gpu_request="gpus-per-node")
PBS = Site(name="p", description="d", scheduler="pbs", launcher="pals", mpiexec="/opt/pals/bin/mpiexec")


def per_node(layout: Layout) -> list[int]:
    return [count for count, times in layout.groups for _ in range(times)]


@given(st.integers(0, 5000), st.integers(1, 500))
def test_a_layout_deals_out_evenly(more: int, nodes: int) -> None:
    processes = nodes + more  # a node without a rank is refused before
    layout = Layout.of(processes, nodes)
    counts = per_node(layout)
    assert sum(counts) == processes == layout.processes
    assert len(counts) == nodes == layout.nodes
    assert max(counts) - min(counts) <= 1
    assert counts == sorted(counts, reverse=True), "the fuller nodes come first"
    assert layout.max_per_node == counts[0]
    assert layout.is_uniform is (len(set(counts)) == 1)
    filled = []
    left = processes
    while left:
        filled.append(min(layout.max_per_node, left))
        left -= filled[-1]
    assert layout.block_filled is (filled == counts)


@pytest.mark.parametrize(
    ("processes", "nodes", "groups", "filled"),
    [
        (24, 2, [(12, 2)], True),
        (7, 2, [(4, 1), (3, 1)], True),
        (11, 3, [(4, 2), (3, 1)], True),
        (10, 4, [(3, 2), (2, 2)], False),
        (4, 4, [(1, 4)], True),
    ],
)
def test_layouts(processes: int, nodes: int, groups: list[tuple[int, int]], filled: bool) -> None:
    layout = Layout.of(processes, nodes)
    assert layout.groups == groups
    assert layout.block_filled is filled


def argv(
    launcher: str,
    site: Site,
    layout: Layout,
    cores: int | None = None,
    devices: int = 0,
    node_devices: int | None = None,
) -> list[str]:
    lists = ["1-2", "3-4"] if cores else []
    of_node = devices * layout.max_per_node if node_devices is None else node_devices
    return LAUNCHERS[launcher].argv(Request(layout, cores, lists, devices, of_node, site))  # type: ignore[index]


EVEN, UNEVEN = Layout.of(4, 2), Layout.of(3, 2)


class TestSrun:
    def test_whole(self) -> None:
        assert argv("srun", SLURM, EVEN, cores=2, devices=1) == [
            *("srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2"),
            # srun has not inherited it from sbatch since Slurm 22.05 (reframe 2655).
            "--cpus-per-task=2",
            # One rank's failure ends the job, and a rank that is still testing is not killed.
            *("--kill-on-bad-exit=1", "--wait=0", "--export=ALL"),
        ]

    def test_uneven_follows_the_host_file(self) -> None:
        words = argv("srun", SLURM, UNEVEN)
        assert "--distribution=arbitrary" in words
        assert not [word for word in words if word.startswith("--ntasks-per-node")]
        assert "--ntasks=3" in words

    def test_devices_per_task_are_asked_of_srun_too(self) -> None:
        site = Site(
            name="s", description="d", scheduler="slurm", launcher="srun", gpu_request="gpus-per-task"
        )
        assert "--gpus-per-task=2" in argv("srun", site, EVEN, devices=2)
        assert not [word for word in argv("srun", site, EVEN) if "gpu" in word]
        assert not [word for word in argv("srun", SLURM, EVEN, devices=2) if "gpu" in word]

    def test_cores_in_what_slurm_counts(self) -> None:
        # On Perlmutter a CPU is a hardware thread, on Frontier a core.
        assert "--cpus-per-task=32" in argv("srun", Site.load("perlmutter"), EVEN, cores=16)
        assert "--cpus-per-task=7" in argv("srun", Site.load("frontier"), EVEN, cores=7)

    def test_devices_are_bound_as_the_site_sets(self) -> None:
        frontier = Site.load("frontier")
        whole = argv("srun", frontier, Layout.of(16, 2), devices=1, node_devices=8)
        assert [word for word in whole if "gpu" in word] == ["--gpus-per-task=1", "--gpu-bind=closest"]
        # A step without all devices may miss those nearest to its cores.
        few = argv("srun", frontier, Layout.of(8, 2), devices=1, node_devices=8)
        assert [word for word in few if "gpu" in word] == ["--gpus-per-node=8", "--gpu-bind=closest"]
        assert not [word for word in argv("srun", frontier, EVEN) if "gpu" in word]
        assert not [word for word in argv("srun", Site.load("perlmutter"), EVEN, devices=1) if "gpu" in word]


class TestMpiexec:
    def test_pals(self) -> None:
        assert argv("pals", PBS, EVEN, cores=2) == [
            *("/opt/pals/bin/mpiexec", "-n", "4", "--ppn", "2", "--cpu-bind", "list:1-2:3-4"),
            "--line-buffer",
        ]
        assert argv("pals", PBS, UNEVEN) == [
            "/opt/pals/bin/mpiexec",
            "-n",
            "3",
            "--ppn",
            "2",
            "--line-buffer",
        ]

    @pytest.mark.parametrize("launcher", ["hydra", "intelmpi"])
    def test_hydras(self, launcher: str) -> None:
        assert argv(launcher, PBS, UNEVEN, cores=2) == ["/opt/pals/bin/mpiexec", "-n", "3"]

    def test_open_mpi_binds_nothing(self) -> None:
        assert argv("openmpi", PBS, EVEN) == ["/opt/pals/bin/mpiexec", "-n", "4", "--bind-to", "none"]

    def test_no_launcher_gets_anothers_flags(self) -> None:
        for name in ("pals", "hydra", "intelmpi"):  # mlcommons/storage 549
            assert not {"--bind-to", "--hostfile", "--map-by", "-x"} & set(argv(name, PBS, EVEN, cores=2))


def test_local() -> None:
    assert argv("local", SLURM, Layout.of(3, 1), cores=2, devices=1) == [
        *("launch", "--here", "--ranks-per-node", "3", "--cores-per-rank", "2", "--devices-per-rank", "1")
    ]
    assert argv("local", SLURM, Layout.of(3, 1)) == ["launch", "--here", "--ranks-per-node", "3"]


def test_every_launcher_belongs_to_a_scheduler_and_the_other_way_round() -> None:
    assert {launcher for name in NAMES for launcher in scheduler_of(name).launchers} == set(LAUNCHERS)


CPUS_OF_RANKS = st.lists(st.sets(st.integers(0, 255), min_size=1).map(sorted), min_size=1, max_size=8)


@given(CPUS_OF_RANKS, st.integers(1, 8), st.booleans())
def test_cpu_lists_are_read_as_they_are_written(listed: list[list[int]], ranks: int, verbose: bool) -> None:
    """In each launcher's words; srun begins a short list anew, and PALS and Hydra have none."""
    words = "verbose," if verbose else ""
    masks = ",".join(hex(sum(1 << cpu for cpu in own)) for own in listed)
    in_turn = [listed[rank % len(listed)] for rank in range(ranks)]
    assert LAUNCHERS["srun"].bound([f"--cpu-bind={words}mask_cpu:{masks}"], ranks, []) == in_turn
    first = ",".join(str(own[0]) for own in listed)
    assert LAUNCHERS["srun"].bound(["--cpu-bind", f"{words}map_cpu:{first}"], ranks, []) == [
        own[:1] for own in in_turn
    ]
    lists = f"{words}list:{':'.join(map(cpulist, listed))}"
    user = f"user:{','.join('+'.join(map(str, own)) for own in listed)}"
    for launcher, flags in (
        (LAUNCHERS["pals"], ["--cpu-bind", lists]),
        (LAUNCHERS["hydra"], ["-bind-to", user]),
    ):
        if len(listed) >= ranks:
            assert launcher.bound(flags, ranks, []) == listed[:ranks]
        else:
            with pytest.raises(
                ValueError, match=f"^which has {len(listed)} CPU lists, but a node has {ranks} "
            ):
                launcher.bound(flags, ranks, [])


ANY_TEXT = st.text("0123456789-,:+x*a", max_size=12)
KINDS_OF_BINDING = st.sampled_from(["list", "user", "map_cpu", "mask_cpu", "depth", "core"])


@given(ANY_TEXT, KINDS_OF_BINDING)
@example("1*0", "map_cpu")
@example("-1", "mask_cpu")
@example("1*-1", "mask_cpu")
def test_any_other_text_is_refused_in_words(text: str, kind: str) -> None:
    for launcher in (LAUNCHERS["srun"], LAUNCHERS["pals"], LAUNCHERS["hydra"]):
        said = ""
        found: list[list[int]] | None = None
        try:
            found = launcher.bound([launcher.bind_flags[0], f"{kind}:{text}"], 2, [0, 1])
        except ValueError as error:
            said = str(error)
        assert not said or said.startswith("which ")
        assert found is None or (len(found) == 2 and all(cpu >= 0 for own in found for cpu in own))
