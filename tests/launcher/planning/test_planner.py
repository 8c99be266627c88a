"""plan(): every decision made, every reason against it said at once, and nothing else touched."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.planner import plan
from castoff.launcher.ranks.visible import MASKS
from castoff.launcher.runs.plan import Devices, Plan
from castoff.launcher.runs.records import encode

FACT: dict[str, Any] = {"source": "s", "date": "2026-08-19"}

AURORA: dict[str, Any] = {
    "command": ["python", "train.py"],
    "account": "a",
    "walltime": "30m",
    "directives": {"filesystems": "home:flare"},
}


POLARIS = {**AURORA, "queue": "debug", "directives": {"filesystems": "home:eagle"}}


def planned(site: Site | str, **fields: Any) -> Plan:
    at = Site.load(site) if isinstance(site, str) else site
    simple = {"command": ["python", "train.py"]}
    charged = {**simple, "account": "m1234", "walltime": "30m"}
    of_site = {"aurora": AURORA, "polaris": POLARIS, "perlmutter": charged, "frontier": charged}
    base = of_site.get(at.name, simple)
    return plan(JobSpec.of({**base, **fields}), at)


def refused(site: Site | str, **fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidInput) as caught:
        planned(site, **fields)
    return {problem.path: problem.message for problem in caught.value.problems}


def derived(name: str, **fields: Any) -> Site:
    """A built-in site with some of its fields changed."""
    return msgspec.convert({**msgspec.to_builtins(Site.load(name)), **fields}, Site)


class TestAurora:
    def test_a_job_of_four_lines(self) -> None:
        found = planned("aurora", nodes=2)
        assert found.name == "train"
        assert (found.nodes, found.ranks, found.layout) == (2, 24, [(12, 2)])
        assert found.directives == [
            ("N", "train"),
            ("A", "a"),
            ("select", "2"),
            ("place", "scatter"),
            ("walltime", "00:30:00"),
            ("filesystems", "home:flare"),
            ("j", "oe"),
            ("r", "n"),
            ("k", "doe"),
        ]
        assert found.start == [
            *("mpiexec", "-n", "24", "--ppn", "12", "--cpu-bind"),
            "list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100",
            *("--line-buffer", "--pmi=pmix"),
        ]
        assert found.cores_per_rank == 8
        assert found.variables["OMP_NUM_THREADS"] == "8"
        assert found.variables["CCL_PROCESS_LAUNCHER"] == "pmix"
        assert found.inherit == "none"
        assert found.master_suffix == ".hsn.cm.aurora.alcf.anl.gov"
        assert found.node_hours == 1.0
        assert found.notes == [
            "12 ranks per node: the node has 12 devices",
            "OMP_NUM_THREADS=8: a rank's cores",
        ]

    def test_six_ranks_use_six_gpus(self) -> None:
        found = planned("aurora", ranks_per_node=6)
        assert found.devices.visible == "0,2,4,6,8,10"
        assert found.device_variable == "ZE_AFFINITY_MASK"
        assert found.start[-3] == "list:1-17:18-34:35-51:53-69:70-86:87-103"

    def test_whole_gpus(self) -> None:
        found = planned("aurora", devices_per_rank=2)
        assert found.layout == [(6, 1)]
        assert found.devices.per_rank[:2] == ["0,1", "2,3"]

    def test_without_devices(self) -> None:
        found = planned("aurora", devices_per_rank=0)
        assert (found.layout, found.devices.step, found.cpu_lists) == ([(1, 1)], None, ["1-51,53-103"])

    def test_no_flag_of_another_mpi_and_none_that_was_not_asked_for(self) -> None:
        # mlcommons/storage 549; ezpz 156: --no-vni is for those who need it.
        assert not {"--no-vni", "--hostfile", "--bind-to", "-x", "--gpu-bind"} & set(planned("aurora").start)
        assert planned("aurora", launcher={"args": ["--no-vni"]}).start[-2:] == ["--pmi=pmix", "--no-vni"]

    def test_every_reason_at_once(self) -> None:
        found = refused(
            "aurora",
            account=None,
            walltime="2h",
            queue="debug",
            nodes=4,
            ranks_per_node=13,
            qos="high",
            name="1st",
            directives={"N": "other"},
            launcher={"name": "srun"},
            grace="3h",
        )
        assert set(found) == {
            *(
                "account",
                "queue",
                "ranks_per_node",
                "qos",
                "name",
                "directives.N",
                "launcher.name",
                "grace",
            ),
            "directives.filesystems",
        }

    @pytest.mark.parametrize(
        ("fields", "nodes"),
        [
            ({"ranks": 4}, 1),
            ({"ranks": 16}, 4),
            ({"ranks": 5}, 2),
            ({"ranks": 4, "devices_per_rank": 2}, 2),
            ({"ranks": 3, "devices_per_rank": 3}, 3),
            ({"ranks": 16, "devices_per_rank": 0}, 1),
        ],
    )
    def test_ranks_get_the_nodes_that_their_devices_need(self, fields: dict[str, Any], nodes: int) -> None:
        found = planned("perlmutter", **fields)
        assert (found.nodes, sum(count * times for count, times in found.layout)) == (nodes, fields["ranks"])
        note = f"{nodes} nodes: {fields['ranks']} ranks use devices, and a node has 4 devices"
        assert (note in found.notes) == (nodes > 1)

    def test_with_nodes_the_message_says_how_many_are_needed(self) -> None:
        words = refused("perlmutter", ranks=16, nodes=1)["ranks"]
        assert "is 16, but a node has 4 devices" in words and "; for 16 ranks, `nodes: 4` (" in words

    def test_ranks_that_share_devices_stay_on_one_node(self) -> None:
        assert planned("aurora", ranks=24).nodes == 1

    @pytest.mark.parametrize(
        ("fields", "path", "words"),
        [
            (
                {"ranks_per_node": 13},
                "ranks_per_node",
                "is 13, but a node has 12 devices; what fits: up to 12",
            ),
            ({"ranks": 26, "nodes": 2}, "ranks", "is 26, but a node has 12 devices"),
            ({"cores_per_rank": 9}, "cores_per_rank", "is 9, but 12 ranks on a node leave each 8 of its 102"),
            ({"devices_per_rank": 2, "ranks_per_node": 12}, "devices_per_rank", "is 2, but 12 ranks with 2"),
        ],
    )
    def test_what_does_not_fit_a_node(self, fields: dict[str, Any], path: str, words: str) -> None:
        found = refused("aurora", **fields)
        assert set(found) == {path}
        assert found[path].startswith(words)
        assert found[path].endswith("aurora/data-science/frameworks/pytorch, 2026-08-19)")


class TestPolaris:
    def test_a_job_of_five_lines(self) -> None:
        found = planned("polaris", nodes=2)
        assert found.layout == [(4, 2)]
        assert found.start == [
            *("mpiexec", "-n", "8", "--ppn", "4", "--cpu-bind", "list:0-7:8-15:16-23:24-31"),
            "--line-buffer",
        ]
        assert (found.devices.visible, found.device_variable) == ("3,2,1,0", "CUDA_VISIBLE_DEVICES")
        assert found.setup == ["module use /soft/modulefiles"]
        assert found.master_suffix == ".hsn.cm.polaris.alcf.anl.gov"
        assert dict(found.directives)["select"] == "2"

    @pytest.mark.parametrize(("ranks", "masks"), [(1, "3"), (2, "3,1"), (3, "3,2,1"), (4, "3,2,1,0")])
    def test_devices_the_other_way_round(self, ranks: int, masks: str) -> None:
        assert planned("polaris", ranks_per_node=ranks).devices.visible == masks

    def test_torchrun_sees_them_in_the_same_order(self) -> None:
        found = planned("polaris", launcher={"torchrun": True})
        assert (found.devices.visible, found.start[-2]) == ("3,2,1,0", "list:0-31")

    def test_torchrun_with_one_rank_sees_all_of_them(self) -> None:
        found = planned("polaris", ranks_per_node=1, launcher={"torchrun": True})
        assert found.devices.visible == "3,0,1,2"

    @pytest.mark.parametrize(
        "command",
        [
            ["torchrun", "--nproc-per-node=4", "x.py"],
            ["/opt/conda/bin/python3.11", "-m", "torch.distributed.run", "x.py"],
            ["accelerate", "launch", "x.py"],
        ],
    )
    def test_a_command_that_starts_a_nodes_ranks(self, command: list[str]) -> None:
        """With a rank's share each of them would find one device, however many they start ranks for."""
        found = planned("polaris", ranks_per_node=1, command=command)
        assert (found.devices_per_rank, found.devices.visible) == (4, None)
        assert "once per rank, and each starts ranks itself" in refused("polaris", command=command)["command"]
        already = refused("polaris", ranks_per_node=1, command=command, launcher={"torchrun": True})
        assert "which launcher.torchrun starts already" in already["command"]

    @pytest.mark.parametrize("program", ["mpirun", "srun", "mpiexec.mpich"])
    def test_a_command_that_starts_all_ranks(self, program: str) -> None:
        command = [program, "-n", "4", "./a.out"]
        said = refused("polaris", command=command)["command"]
        assert said.startswith(f"starts {program} 4 times on a node, once per rank")
        assert planned("polaris", command=command, launcher={"driver": True}).command == command
        assert planned("polaris", command=command, ranks_per_node=1).command == command

    def test_a_mask_of_the_jobs_own(self) -> None:
        """castoff's would come after it."""
        mine = {"env": {"CUDA_VISIBLE_DEVICES": "0,1"}}
        said = refused("polaris", ranks_per_node=2, **mine)["env.CUDA_VISIBLE_DEVICES"]
        assert (
            "is '0,1', but castoff sets it for each rank (3,1): drop it; or use `devices_per_rank: 0`" in said
        )
        found = planned("polaris", devices_per_rank=0, **mine)
        assert (found.devices, found.variables["CUDA_VISIBLE_DEVICES"]) == (Devices(), "0,1")

    @pytest.mark.parametrize("site", ["slurm", "pbs", "flux", "frontier", "polaris"])
    @pytest.mark.parametrize("variable", MASKS)
    @pytest.mark.parametrize("place", ["env", "container.env"])
    def test_a_mask_of_any_vendor_on_any_cluster(self, site: str, variable: str, place: str) -> None:
        """Also where the profile does not know the nodes, and the scheduler deals devices out."""
        container = {"container": {"image": "/x.sif", "runtime": "apptainer", "env": {variable: "0,1"}}}
        mine = {"env": {variable: "0,1"}} if place == "env" else container
        said = refused(site, ranks_per_node=2, devices_per_rank=2, **mine)[f"{place}.{variable}"]
        assert said.startswith("is '0,1', but ") and "use `devices_per_rank: 0`" in said
        planned(site, ranks_per_node=2, devices_per_rank=0, **mine)

    def test_a_mask_on_this_machine_says_which_devices_there_are(self) -> None:
        found = planned("local", ranks_per_node=2, devices_per_rank=1, env={"CUDA_VISIBLE_DEVICES": "2,3"})
        assert found.variables["CUDA_VISIBLE_DEVICES"] == "2,3"


class TestPerlmutter:
    def test_a_job_of_one_line(self) -> None:
        found = planned("perlmutter", nodes=2)
        assert found.layout == [(4, 2)]
        directives = dict(found.directives)
        assert (directives["constraint"], directives["gpus-per-node"]) == ("gpu", "4")
        assert (directives["cpus-per-task"], found.cores_per_rank) == ("32", 16)
        assert "--cpus-per-task=32" in found.start
        assert found.variables["OMP_NUM_THREADS"] == "16", "threads count cores, whatever Slurm counts"
        assert (found.devices.visible, found.devices.step) == ("3,2,1,0", 1)
        assert "--cpus-per-task=32: a rank's 16 cores, which have 2 CPUs each" in found.notes

    @pytest.mark.parametrize(("ranks", "masks", "cpus"), [(1, "3", "128"), (2, "3,1", "64")])
    def test_a_job_has_all_devices_of_its_nodes(self, ranks: int, masks: str, cpus: str) -> None:
        # Else a rank would look for device 3 among one or two.
        found = planned("perlmutter", ranks_per_node=ranks)
        directives = dict(found.directives)
        assert (directives["gpus-per-node"], directives["cpus-per-task"]) == ("4", cpus)
        assert found.devices.visible == masks

    def test_other_nodes_by_their_constraint(self) -> None:
        found = planned("perlmutter", constraint="gpu&hbm80g")
        assert dict(found.directives)["constraint"] == "gpu&hbm80g"

    def test_in_shared_a_job_has_only_what_it_asks_for(self) -> None:
        found = planned("perlmutter", qos="shared", ranks_per_node=1)
        directives = dict(found.directives)
        assert (directives["gpus-per-node"], directives["cpus-per-task"]) == ("1", "32")
        assert (found.devices.visible, found.devices.step) == (None, 1)
        both = planned("perlmutter", qos="shared")
        assert (both.layout, dict(both.directives)["cpus-per-task"]) == ([(2, 1)], "32")
        assert "2 ranks per node: shared gives a job 2 of a node's devices" in both.notes
        torchrun = planned("perlmutter", qos="shared", launcher={"torchrun": True})
        assert torchrun.devices == Devices(), "Slurm numbers the job's own from 0"

    def test_more_than_shared_gives(self) -> None:
        found = refused("perlmutter", qos="shared", ranks_per_node=4)
        assert found["ranks_per_node"].startswith("is 4, but shared gives a job 2 of a node's devices (")
        assert found["ranks_per_node"].endswith("use up to 2 ranks a node, or another qos")
        assert set(refused("perlmutter", qos="shared", ranks_per_node=2, devices_per_rank=2)) == {
            "ranks_per_node"
        }

    def test_without_devices(self) -> None:
        found = planned("perlmutter", devices_per_rank=0, ranks_per_node=2)
        assert not [name for name, _ in found.directives if "gpu" in name]
        assert found.devices == Devices()


class TestFrontier:
    def test_a_job_of_one_line(self) -> None:
        found = planned("frontier", nodes=2)
        assert (found.layout, found.cores_per_rank) == ([(8, 2)], 7)
        directives = dict(found.directives)
        assert directives["network"] == "disable_rdzv_get"
        assert (directives["cpus-per-task"], directives["ntasks-per-node"]) == ("7", "8")
        assert not [name for name in directives if "gpu" in name]
        assert found.start[4:7] == ["--cpus-per-task=7", "--gpus-per-task=1", "--gpu-bind=closest"]
        assert found.devices == Devices(step=0), "each rank sees its own alone"

    @pytest.mark.parametrize(("ranks", "cores"), [(1, 56), (2, 28), (4, 14)])
    def test_fewer_ranks_have_more_cores_and_the_step_all_devices(self, ranks: int, cores: int) -> None:
        found = planned("frontier", ranks_per_node=ranks)
        assert found.start[4:7] == [f"--cpus-per-task={cores}", "--gpus-per-node=8", "--gpu-bind=closest"]
        assert found.devices.step == 0

    def test_the_first_core_of_each_l3_is_nobodys(self) -> None:
        found = refused("frontier", cores_per_rank=8)
        assert set(found) == {"cores_per_rank"}
        assert found["cores_per_rank"].startswith("is 8, but 8 ranks on a node leave each 7 of its 56 cores")
        assert set(refused("frontier", ranks_per_node=57, devices_per_rank=0)) == {"ranks_per_node"}

    def test_torchrun_owns_the_node(self) -> None:
        found = planned("frontier", launcher={"torchrun": True})
        assert found.start[3:7] == [
            *("--ntasks-per-node=1", "--cpus-per-task=56", "--gpus-per-task=8", "--gpu-bind=closest")
        ]
        assert found.devices == Devices()


class TestLayout:
    @pytest.mark.parametrize(
        ("fields", "layout"),
        [
            ({}, [(1, 1)]),
            ({"nodes": 3}, [(1, 3)]),
            ({"ranks_per_node": 4, "nodes": 2}, [(4, 2)]),
            ({"ranks": 7, "nodes": 2}, [(4, 1), (3, 1)]),
            ({"ranks": 10, "nodes": 4}, [(3, 2), (2, 2)]),
            ({"ranks": 5}, [(5, 1)]),
        ],
    )
    def test_layouts(self, fields: dict[str, Any], layout: list[tuple[int, int]]) -> None:
        found = planned("slurm", **fields)
        assert found.layout == layout
        assert found.ranks == sum(count * times for count, times in layout)

    def test_pals_fills_node_after_node(self) -> None:
        message = refused("aurora", ranks=10, nodes=4)["ranks"]
        assert message.endswith("use 8 or 12")
        assert "fills node after node with 3" in message
        assert planned("aurora", ranks=11, nodes=3).layout == [(4, 2), (3, 1)]
        assert planned("aurora", ranks=10, nodes=4, launcher={"torchrun": True}).ranks == 10
        assert planned("pbs", ranks=10, nodes=4).ranks == 10

    def test_a_machine_alone_is_one_node(self) -> None:
        assert refused("local", nodes=2) == {"nodes": "is 2, but this machine is one node; use `nodes: 1`"}
        assert planned("local", ranks=3).start == ["launch", "--here", "--ranks-per-node", "3"]

    def test_logs_of_many_ranks(self) -> None:
        assert planned("slurm", ranks_per_node=16, nodes=16).per_rank_logs
        assert not planned("slurm", ranks=257, nodes=16).per_rank_logs


class TestTorchrun:
    def test_one_process_a_node_owns_all_of_it(self) -> None:
        found = planned("aurora", nodes=2, launcher={"torchrun": True})
        assert found.start == [
            "mpiexec",
            "-n",
            "2",
            "--ppn",
            "1",
            "--cpu-bind",
            "list:1-51,53-103",
            "--line-buffer",
            "--pmi=pmix",
        ]
        assert (found.ranks, found.layout, found.cores_per_rank) == (24, [(12, 2)], 8)
        assert not found.per_rank_logs

    def test_on_slurm_it_gets_the_cores_and_devices_of_its_ranks(self) -> None:
        found = planned(
            "slurm",
            nodes=2,
            ranks_per_node=4,
            cores_per_rank=3,
            devices_per_rank=1,
            launcher={"torchrun": True},
        )
        directives = dict(found.directives)
        assert directives["ntasks-per-node"] == "1"
        assert directives["cpus-per-task"] == "12"
        assert directives["gpus-per-node"] == "4"
        assert "--cpus-per-task=12" in found.start

    def test_it_hands_out_no_devices(self) -> None:
        found = planned("aurora", ranks_per_node=24, launcher={"torchrun": True})
        assert (found.devices.step, found.devices.per_rank) == (None, [])
        assert any("torchrun hands out no devices" in note for note in found.notes)
        assert not any("torchrun" in note for note in planned("aurora", launcher={"torchrun": True}).notes)

    def test_a_nodes_ranks_see_devices_spread_over_it(self) -> None:
        found = planned("aurora", ranks_per_node=6, launcher={"torchrun": True})
        assert (found.devices.step, found.devices.visible) == (None, "0,2,4,6,8,10")

    def test_ranks_must_fit_all_the_same(self) -> None:
        assert set(refused("aurora", ranks_per_node=13, launcher={"torchrun": True})) == {"ranks_per_node"}


class TestLaunchers:
    @pytest.mark.parametrize(
        ("site", "launcher"), [("slurm", "hydra"), ("slurm", "openmpi"), ("pbs", "pals"), ("aurora", "hydra")]
    )
    def test_another_than_the_sites(self, site: str, launcher: str) -> None:
        assert planned(site, launcher={"name": launcher}).launcher == launcher

    def test_one_that_cannot_run_there(self) -> None:
        message = refused("pbs", launcher={"name": "srun"})["launcher.name"]
        assert message == "is srun, but a PBS job's ranks start with one of pals, hydra, intelmpi, openmpi"

    def test_a_site_whose_own_cannot_is_the_sites_fault(self) -> None:
        with pytest.raises(InvalidInput, match="site pbs: launcher: is srun, but a PBS job's"):
            planned(derived("pbs", launcher="srun"))

    def test_more_words_than_mpich_can_take(self) -> None:
        assert planned("pbs", command=["x"] * 991)
        message = refused("pbs", command=["x"] * 992)["command"]
        assert (
            message
            == "has 992 words, but hydra takes at most 991: write them to a file that the program reads"
        )
        assert planned("slurm", command=["x"] * 5000) and planned("aurora", command=["x"] * 5000)

    def test_a_clusters_job_runs_locally_and_the_plan_notes_what_is_ignored(self) -> None:
        found = planned(
            "local",
            queue="q",
            account="a",
            directives={"N": "other"},
            launcher={"name": "pals", "args": ["-l"]},
        )
        assert found.launcher == "local"
        assert found.start == ["launch", "--here", "--ranks-per-node", "1"]
        assert found.directives == []
        assert [note.partition(":")[0] for note in found.notes if "no effect here" in note] == [
            *("account", "queue", "directives", "launcher.name", "launcher.args")
        ]

    def test_the_sites_flags_come_before_the_jobs(self) -> None:
        at = derived("slurm", launcher_args=["--mpi=pmi2"])
        assert planned(at, launcher={"args": ["--label"]}).start[-2:] == ["--mpi=pmi2", "--label"]

    @pytest.mark.parametrize(
        ("fields", "own"),
        [
            ({"launcher": {"args": ["--distribution=cyclic"]}}, "own"),
            ({"launcher": {"args": ["-m", "cyclic"]}}, "own"),
            ({"directives": {"distribution": "cyclic"}}, "own"),
            ({"launcher": {"args": ["--distribution=arbitrary"]}}, "arbitrary"),
            ({"launcher": {"args": ["-m", "arbitrary"]}}, "arbitrary"),
            ({"directives": {"distribution": "arbitrary"}}, "arbitrary"),
            ({"directives": {"distribution": "arbitrary"}, "launcher": {"args": ["-m", "cyclic"]}}, "own"),
            ({"directives": {"distribution": None}}, None),
            ({"launcher": {"args": ["--mem=4G", "--multi-prog"]}}, None),
            ({"launcher": {"args": ["--distribution=cyclic"], "torchrun": True}}, None),
        ],
    )
    def test_the_jobs_own_distribution_is_not_overruled(
        self, fields: dict[str, Any], own: str | None
    ) -> None:
        found = planned("slurm", nodes=2, ranks=3, **fields)
        assert found.own_distribution == own
        if not found.torchrun and own != "arbitrary":
            assert ("--distribution=arbitrary" in found.start) == (own is None)

    def test_no_mpi_plugin_unless_asked_for(self) -> None:
        # NeMo Speech 14829: a default of --mpi=pmix breaks launches.
        assert not [word for word in planned("slurm").start if "mpi" in word]


class TestStartTimeout:
    @pytest.mark.parametrize(
        ("site", "fields", "seconds"),
        [
            ("slurm", {}, 600),
            ("pbs", {"launcher": {"timeout": "90s"}}, 90),
            ("slurm", {"container": {"runtime": "pyxis", "image": "i"}}, None),  # srun imports it first
            ("slurm", {"container": {"runtime": "pyxis", "image": "i"}, "launcher": {"timeout": "1h"}}, 3600),
            ("slurm", {"container": {"runtime": "apptainer", "image": "/i"}}, 600),
        ],
    )
    def test_from_the_job_or_by_default(self, site: str, fields: dict[str, Any], seconds: int | None) -> None:
        assert planned(site, nodes=2, **fields).start_timeout == seconds

    def test_a_sites_default(self) -> None:
        assert planned(derived("slurm", defaults={"launcher": {"timeout": "30m"}})).start_timeout == 1800


class TestNothingSlipsPast:
    """What is checked in a field is not taken as a raw directive."""

    def test_a_partitions_walltime(self) -> None:
        queues = {"short": {"ranges": [{"max_walltime": "1h"}], **FACT}, "long": {**FACT}}
        at = derived("slurm", queues=queues)
        assert "does not take 1 node for 04:00:00" in refused(at, queue="short", walltime="4h")["queue"]
        message = refused(at, directives={"partition": "short"}, walltime="4h")["directives.partition"]
        assert message == "follows from other fields; set queue instead"
        with pytest.raises(InvalidInput, match=r"set defaults\.queue instead") as caught:
            planned(msgspec.structs.replace(at, directives={"slurm": {"partition": "short"}}))
        assert str(caught.value).startswith("site slurm: directives.slurm.partition: ")

    def test_nor_from_a_profile(self) -> None:
        at = derived("slurm", directives={"time": "4:00:00", "export": "ALL", "signal": None, "p": "short"})
        assert list(refused(at, walltime="1h")) == [f"directives.{name}" for name in at.directives]

    def test_memory(self) -> None:
        node = {"memory": "500G", **FACT}
        for name in ("slurm", "pbs"):
            at = derived(name, node=node)
            message = refused(at, memory="900G")["memory"]
            assert message.startswith(f"is 900G, but a node has 500G ({name}: s, 2026-08-19): lower it")
            assert planned(at, memory="500G")
        at = derived("slurm", node=node)
        assert "set memory instead" in refused(at, directives={"mem": "900G"})["directives.mem"]
        assert (
            "excludes memory"
            in refused(at, memory="1G", directives={"mem-per-cpu": "9G"})["directives.mem-per-cpu"]
        )
        assert ("mem", "0") in planned(at, directives={"mem": 0}).directives, "which no field can say"

    def test_a_raw_directive_beyond_the_field_is_kept(self) -> None:
        assert ("exclusive", "user") in planned("slurm", directives={"exclusive": "user"}).directives
        assert ("mail-type", "ALL") in planned("slurm", directives={"mail-type": "ALL"}).directives


class TestDevices:
    @pytest.mark.parametrize(
        ("request_", "flag", "step"),
        [
            ("gpus-per-node", ("gpus-per-node", "4"), 1),
            ("gres", ("gres", "gpu:4"), 1),
            ("gpus-per-task", ("gpus-per-task", "1"), 0),
        ],
    )
    def test_where_slurm_hands_them_out(self, request_: str, flag: tuple[str, str], step: int) -> None:
        found = planned(derived("slurm", gpu_request=request_), ranks_per_node=4, devices_per_rank=1)
        assert flag in found.directives
        assert found.devices.step == step  # lightning 13605: with gpus-per-task each sees its own as 0

    @pytest.mark.parametrize(
        ("request_", "flag"),
        [
            ("gpus-per-node", ("gpus-per-node", "a100:{}")),
            ("gres", ("gres", "gpu:a100:{}")),
            ("gpus-per-task", ("gpus-per-task", "a100:1")),
        ],
    )
    def test_of_one_type(self, request_: str, flag: tuple[str, str]) -> None:
        at = derived("slurm", gpu_request=request_, defaults={"device_type": "a100"})
        for ranks in (2, 4):
            name, value = flag
            fields: dict[str, Any] = {"ranks_per_node": ranks, "devices_per_rank": 1}
            found = planned(at, **fields)
            assert dict(found.directives)[name] == value.format(ranks)
            assert ("--gpus-per-task=a100:1" in found.start) is (name == "gpus-per-task")
            older = planned(at, device_type="v100", **fields)
            assert dict(older.directives)[name] == value.format(ranks).replace("a100", "v100")
        whole = planned(at, **fields, exclusive=True)
        assert "a100:4" in f"{whole.directives}", "or the nodes might be of another type"
        none = planned(at, ranks_per_node=2, devices_per_rank=0)
        assert "a100" not in f"{none.directives}{none.start}"
        for nothing in ({"devices_per_rank": 0}, {}):  # the plain profile knows of no devices
            asked = refused("slurm", ranks_per_node=2, device_type="a100", **nothing)
            assert asked == {
                "device_type": "is a100, but the job asks for no devices: set devices_per_rank, or drop it"
            }

    @pytest.mark.parametrize(
        ("fields", "raw", "words"),
        [
            ({"devices_per_rank": 1}, {"gpus-per-node": "a100:4"}, "is a100:4, but gpus-per-node=2 follows"),
            ({"devices_per_rank": 1}, {"gres": "gpu:a100:2,lustre:1"}, None),
            ({"devices_per_rank": 1}, {"gres": "gpu:a100:1,gpu:v100:1"}, None),
            ({"devices_per_rank": 1}, {"gres": "gpu:a100:4"}, "is gpu:a100:4, but gpus-per-node=2 follows"),
            ({"devices_per_rank": 1}, {"gres": "gpu:a100"}, "is gpu:a100, but gpus-per-node=2 follows"),
            ({"devices_per_rank": 1}, {"gpus-per-task": "a100:1"}, "but gpus-per-node=2 follows"),
            (
                {"devices_per_rank": 1, "device_type": "v100"},
                {"gres": "gpu:a100:2"},
                "is gpu:a100:2, but device_type is v100: drop one of the two",
            ),
            ({"devices_per_rank": 1}, {"gpus": "2"}, "is 2, but gpus-per-node=2 follows"),
            ({"devices_per_rank": 0}, {"gres": "gpu:2"}, "asks for GPUs (gpu:2), but devices_per_rank is 0"),
            ({"devices_per_rank": 1}, {"gpus-per-node": "a100:2"}, None),
            ({"devices_per_rank": 1}, {"gres": "lustre:1"}, None),
            ({"devices_per_rank": 0}, {"gres": "lustre"}, None),
            ({}, {"gres": "gpu:a100:4"}, None),
        ],
    )
    def test_asked_for_in_the_schedulers_words_too(
        self, fields: dict[str, Any], raw: dict[str, str], words: str | None
    ) -> None:
        fields = {"ranks_per_node": 2, "directives": {"slurm": raw}, **fields}
        if words is None:
            asked = dict(planned("slurm", **fields).directives)
            assert asked.items() >= raw.items()
            assert "gpu:" not in str(raw) or "gpus-per-node" not in asked, "Slurm is asked once"
        else:
            ((path, message),) = refused("slurm", **fields).items()
            assert path == f"directives.slurm.{next(iter(raw))}" and words in message

    def test_a_raw_request_may_not_drop_the_jobs_own(self) -> None:
        at = derived("slurm", gpu_request="gres")
        fields: dict[str, Any] = {"ranks_per_node": 2, "devices_per_rank": 1}
        message = refused(at, **fields, directives={"gres": "lustre:1"})["directives.gres"]
        assert message == "is lustre:1, in place of castoff's gres=gpu:2: write gpu:2,lustre:1"
        both = planned(at, **fields, directives={"gres": "gpu:2,lustre:1"})
        assert dict(both.directives)["gres"] == "gpu:2,lustre:1"

    def test_none_unless_asked_for_where_nobody_knows_the_nodes(self) -> None:
        found = planned("slurm", ranks_per_node=4)
        assert found.devices_per_rank == 0
        assert found.devices.step is None
        assert not [name for name, _ in found.directives if "g" in name[:1]]

    def test_some_of_a_known_nodes_devices_are_numbered_by_slurm(self) -> None:
        node = {"sockets": ["0-63"], "devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", **FACT}
        found = planned(derived("slurm", node=node), ranks_per_node=2)
        assert dict(found.directives)["gpus-per-node"] == "2"
        assert found.devices == Devices(step=1), "0 and 2 would be none of the job's"
        whole = planned(derived("slurm", node=node), ranks_per_node=2, exclusive=True)
        assert dict(whole.directives)["gpus-per-node"] == "4"
        assert whole.devices.visible == "0,2"

    def test_ranks_that_share_devices_ask_for_each_once(self) -> None:
        node = {"devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", "ranks_per_device": 2, **FACT}
        found = planned(derived("pbs", node=node), ranks_per_node=8)
        assert dict(found.directives)["select"] == "1:ncpus=8:mpiprocs=8:ngpus=4"
        assert found.devices.per_rank == ["0", "0", "1", "1", "2", "2", "3", "3"]

    def test_a_known_node_that_slurm_runs(self) -> None:
        node = {"sockets": ["0-63"], "devices": [4], "device_variable": "CUDA_VISIBLE_DEVICES", **FACT}
        found = planned(derived("slurm", node=node))
        assert found.layout == [(4, 1)]
        assert ("gpus-per-node", "4") in found.directives
        assert found.cores_per_rank == 16
        assert "--cpus-per-task=16" in found.start


class TestEnvironment:
    @pytest.mark.parametrize(
        ("site", "asked", "reported"),
        [
            ("slurm", None, "none"),
            ("slurm", "none", "none"),
            ("slurm", "all", "all"),
            ("slurm", ["A"], ["A"]),
            ("slurm", [], "none"),
            ("local", None, "all"),
            ("local", [], "none"),
        ],
    )
    def test_what_is_inherited(self, site: str, asked: Any, reported: Any) -> None:
        assert planned(site, inherit=asked).inherit == reported

    @pytest.mark.parametrize(
        ("asked", "reported"),
        [(None, None), ("a b", "./a b"), ("-", "./-"), ("../x", "./../x"), ("/x", "/x")],
    )
    def test_a_folder_that_cd_takes_as_one(self, asked: str | None, reported: str | None) -> None:
        assert planned("slurm", workdir=asked).workdir == reported

    def test_threads(self) -> None:
        assert planned("slurm").variables == {"OMP_NUM_THREADS": "1"}
        assert planned("slurm", cores_per_rank=6).variables == {"OMP_NUM_THREADS": "6"}
        assert planned("slurm", env={"OMP_NUM_THREADS": "2"}).variables == {"OMP_NUM_THREADS": "2"}
        assert planned("local").variables == {}, "the local launcher knows the host's cores"

    def test_the_job_wins_over_its_site(self) -> None:
        found = planned("aurora", env={"TMPDIR": "/dev/shm", "my_Case": "x"})
        assert found.variables["TMPDIR"] == "/dev/shm"
        assert found.variables["my_Case"] == "x"
        assert "TMPDIR" not in found.default_env and list(found.env) == ["TMPDIR", "my_Case"]


def test_arrays_dependencies_and_requeues_are_reported() -> None:
    found = planned(
        "slurm",
        array={"count": 8, "max_concurrent": 2},
        after={"afterok": ["12"]},
        requeue={"max": 3},
        walltime="1h",
        nodes=2,
    )
    assert (found.array_count, found.array_max_concurrent, found.requeue_max) == (8, 2, 3)
    assert found.after == {"afterok": ["12"]}
    assert ("dependency", "afterok:12") in found.directives
    assert found.node_hours == 16
    assert planned("slurm").node_hours is None
    named = planned("slurm", after={"afterok": ["preprocess"]})
    assert "dependency" not in dict(named.directives), "a run's id is known at its submission only"
    assert named.after == {"afterok": ["preprocess"]}


def test_a_function_needs_no_command() -> None:
    found = plan(JobSpec(), Site.load("slurm"), function=True)
    assert (found.name, found.function) == ("function", True)
    with pytest.raises(InvalidInput, match="command: is missing"):
        plan(JobSpec(), Site.load("slurm"))


def test_a_plan_shows_every_decision() -> None:
    text = encode(planned("aurora"))
    assert text.startswith('{\n  "name": "train",\n  "site": "aurora",')
    assert set(json.loads(text)) == {field.name for field in msgspec.structs.fields(Plan)}


def test_nodes_without_devices_are_laid_out_by_cores_alone() -> None:
    at = derived("pbs", node=msgspec.to_builtins(Node(sockets=["0-15", "16-31"], **FACT)))
    found = planned(at, ranks_per_node=4)
    assert found.cpu_lists == ["0-7", "8-15", "16-23", "24-31"]
    assert dict(found.directives)["select"] == "1:ncpus=32:mpiprocs=4"


class TestStopping:
    @pytest.mark.parametrize(
        ("walltime", "grace"),
        [(None, 120), ("1s", 0), ("1m", 15), ("8m", 120), ("00:07:59", 119), ("1d", 120)],
    )
    def test_a_short_walltime_has_a_short_grace(self, walltime: str | None, grace: int) -> None:
        assert planned("slurm", walltime=walltime).grace == grace

    def test_what_is_asked_for_counts(self) -> None:
        assert planned("slurm", walltime="1m", grace="59s").grace == 59
        assert "leaves nothing of the walltime" in refused("slurm", walltime="1m", grace="2m")["grace"]
