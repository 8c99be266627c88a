"""Layouts, and the argv that asks each launcher for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.site import Site
from launcher.launchers.base import Layout, Request
from launcher.launchers.commands import LAUNCHERS
from launcher.schedulers.registry import NAMES, scheduler_of

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
