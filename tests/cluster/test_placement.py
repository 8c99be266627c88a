"""Where ranks find themselves: on any number of hosts, in any layout, with and without GPUs.

All jobs are submitted at once; each test then looks at its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff import Site
from tests.cases import others_long
from tests.launcher.scripts.harness import PROBE, STALE

from .jobs import Submitted
from .slurm import HEAD, NODES, SlurmCluster

PROGRAMS = [sys.executable, str(Path(__file__).with_name("programs.py"))]
TORCHRUN = [
    *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"),
    *("--node-rank=$NODE_RANK", "--master-addr=$MASTER_ADDR", "--master-port=$MASTER_PORT"),
]
THREE_AND_ONE = (
    'scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "1{p;p}" >placed; export SLURM_HOSTFILE=$PWD/placed'
)
BACKWARDS = (
    'scontrol show hostnames "$SLURM_JOB_NODELIST" | sed p | tac >placed; export SLURM_HOSTFILE=$PWD/placed'
)
# What srun tells a step, of which sbatch in that step hands on all, whatever its --export says.
OUTER_STEP = {
    **{
        "SLURM_CPU_BIND": "quiet,mask_cpu:0x1",
        "SLURM_CPU_BIND_LIST": "0x1",
        "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    },
    **{"SLURM_CPU_BIND_VERBOSE": "quiet", "SLURM_DISTRIBUTION": "cyclic", "SLURM_CPUS_PER_TASK": "5"},
    **{"SLURM_MEM_BIND": "quiet,local", "SLURM_MEM_BIND_TYPE": "local", "SLURM_STEP_ID": "0"},
    # Of a job with --mem, beside this one's SLURM_MEM_PER_CPU: srun refuses both.
    **{"SLURM_MEM_PER_NODE": "1000", "SLURM_NTASKS_PER_SOCKET": "1", "SLURM_TRES_PER_TASK": "gres/gpu:5"},
}
A_STEP_IN_SETUP = "srun --overlap --nodes=1 --ntasks=1 env >step-of-setup"

HOLD = [
    "srun --ntasks=4 --ntasks-per-node=2 sh -c ': >held-$SLURM_PROCID; exec sleep 600' &",
    "until [ -e held-0 ] && [ -e held-1 ] && [ -e held-2 ] && [ -e held-3 ]; do sleep 0.1; done",
]
"""A step that has all CPUs of the job."""

TWO: dict[str, Any] = {"nodes": 2, "ranks_per_node": 2}
ARBITRARY = {"args": ["--distribution=arbitrary"]}


@pytest.fixture(scope="module")
def jobs(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    folder = tmp_path_factory.mktemp("jobs")
    submitted = {}

    def submit(name: str, gpus: str | None = None, **fields: Any) -> None:
        site = msgspec.structs.replace(Site.load("slurm"), **({"gpu_request": gpus} if gpus else {}))
        submitted[name] = Submitted(slurm, folder / name, site=site, **fields)

    for hosts in (1, 2, 3, 4):
        submit(f"hosts-{hosts}", nodes=hosts, ranks_per_node=2)
    submit("uneven", nodes=3, ranks=7)
    submit("three-and-one", setup=[THREE_AND_ONE], launcher=ARBITRARY, nodes=2, ranks=4)
    submit("in-a-step", env=OUTER_STEP, setup=[A_STEP_IN_SETUP], **TWO)
    submit("cyclic", launcher={"args": ["--distribution=cyclic"]}, **TWO)
    submit("cyclic-uneven", directives={"distribution": "cyclic"}, nodes=2, ranks=3)
    submit("stale", env=STALE, inherit="all", **TWO)
    for request in ("gpus-per-node", "gres", "gpus-per-task"):
        submit(request, gpus=request, devices_per_rank=1, **TWO)
    for name, rule in (("closest", "closest"), ("same-mask", "mask_gpu:0x3"), ("single", "single:1")):
        # A mask is of the node's devices: where another job had the first two, it would show one.
        whole: dict[str, Any] = {"exclusive": True} if name == "same-mask" else {}
        submit(name, devices_per_rank=1, launcher={"args": [f"--gpu-bind={rule}"]}, **whole, **TWO)
    submit("gpus-shared", devices_per_rank=2, nodes=1, ranks_per_node=2)
    typed: dict[str, Any] = {"nodes": 1, "ranks_per_node": 2, "devices_per_rank": 1}
    for request in ("gpus-per-node", "gres", "gpus-per-task"):
        submit(f"typed-{request}", gpus=request, device_type="a100", **typed)
    submit("typed-raw", directives={"slurm": {"gres": "gpu:a100:2"}}, **typed)
    submit("cores", cores_per_rank=3, **TWO)
    submit("held-up", setup=HOLD, launcher={"timeout": "2s"}, **TWO)
    return submitted


@pytest.fixture(scope="module")
def torch_jobs(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Submitted]:
    """Those whose ranks, or what starts them, import torch."""
    folder = tmp_path_factory.mktemp("torch-jobs")
    torchrun: dict[str, Any] = {**TWO, "launcher": {"torchrun": True}, "python": sys.executable}
    failing = ["sh", "-c", '[ "$RANK" != 3 ] || exit 7; exec sleep 600']
    by_hand = ["sh", "-c", f"exec {' '.join(TORCHRUN)} {PROBE[1]}"]
    fields: dict[str, dict[str, Any]] = {
        "inner": torchrun,
        "inner-fails": {**torchrun, "command": failing},
        "outer": {"command": by_hand, "nodes": 2},
        "backwards": {"command": [*PROGRAMS, "env"], "setup": [BACKWARDS], "launcher": ARBITRARY, **TWO},
    }
    return {name: Submitted(slurm, folder / name, **given) for name, given in fields.items()}


def placed(job: Submitted) -> list[tuple[Any, ...]]:
    """Rank, local rank, ranks there, node, and the number of its host in the job's list, of every rank."""
    hosts = hosts_of(job)
    assert "Warning" not in job.output()
    ranks = job.ranks()
    assert {rank["detected"]["world_size"] for rank in ranks} == {len(ranks)}
    assert {rank["environ"]["MASTER_ADDR"] for rank in ranks} == {hosts[0] if hosts[1:] else "127.0.0.1"}
    fields = ("rank", "local_rank", "local_world_size", "node_rank")
    return [
        (*(rank["detected"][field] for field in fields), hosts.index(rank["environ"]["SLURMD_NODENAME"]))
        for rank in ranks
    ]


def blocks(*counts: int) -> list[tuple[int, ...]]:
    """What `placed` says of so many ranks on each host, host by host."""
    there = [(local, count, host, host) for host, count in enumerate(counts) for local in range(count)]
    return [(rank, *place) for rank, place in enumerate(there)]


@pytest.mark.parametrize("hosts", others_long([1, 2, 3, 4], [3]))
def test_on_some_hosts(hosts: int, jobs: dict[str, Submitted]) -> None:
    assert placed(jobs[f"hosts-{hosts}"]) == blocks(*[2] * hosts)


def test_uneven_layouts(jobs: dict[str, Submitted]) -> None:
    assert placed(jobs["uneven"]) == blocks(3, 2, 2)
    assert placed(jobs["three-and-one"]) == blocks(3, 1)


def test_a_script_submitted_in_a_step_has_none_of_its_bindings(jobs: dict[str, Submitted]) -> None:
    job = jobs["in-a-step"]
    assert placed(job) == blocks(2, 2)
    reported = {name: text for rank in job.ranks() for name, text in rank["environ"].items()}
    assert not [
        name for name, text in reported.items() if "BIND" in name and ("0x1" in text or "local" in text)
    ]
    assert reported.get("SLURM_CPUS_PER_TASK", "1") == "1"


def test_a_step_of_setup_begins_with_the_jobs_environment(jobs: dict[str, Submitted]) -> None:
    """Although sbatch was told to export nothing."""
    job = jobs["in-a-step"]
    assert job.ending() == ("done", 0), job.output()
    assert "PATH=" in (job.folder / "step-of-setup").read_text()


def test_cyclic_layouts(jobs: dict[str, Submitted]) -> None:
    assert placed(jobs["cyclic"]) == [(0, 0, 2, 0, 0), (1, 0, 2, 1, 1), (2, 1, 2, 0, 0), (3, 1, 2, 1, 1)]
    assert placed(jobs["cyclic-uneven"]) == [(0, 0, 2, 0, 0), (1, 0, 1, 1, 1), (2, 1, 2, 0, 0)]


def test_stale_variables_misplace_no_rank(jobs: dict[str, Submitted]) -> None:
    job = jobs["stale"]
    assert placed(job) == blocks(2, 2)
    assert {rank["detected"]["launcher"] for rank in job.ranks()} == {"srun"}
    assert {rank["environ"].get("PMI_RANK") for rank in job.ranks()} == {None}
    assert job.accounted() == ("COMPLETED", "0:0")


@pytest.mark.costly
@pytest.mark.parametrize("name", ["inner", "outer"])
def test_torchrun(name: str, torch_jobs: dict[str, Submitted]) -> None:
    """Started by castoff on every node, or by a program of one rank a node."""
    assert placed(torch_jobs[name]) == blocks(2, 2)
    assert {rank["detected"]["launcher"] for rank in torch_jobs[name].ranks()} == {"torchrun"}


@pytest.mark.costly
def test_a_rank_that_fails_under_torchrun(torch_jobs: dict[str, Submitted]) -> None:
    """Known by its number among all ranks, and over at once."""
    job = torch_jobs["inner-fails"]
    assert job.ending() == ("failed", 7), job.output()
    record = job.record("failure")
    assert (record["rank"], record["code"], record["log"]) == (3, 7, "node-00001.log")


@pytest.mark.costly
def test_a_program_that_knows_nothing_of_castoff(torch_jobs: dict[str, Submitted]) -> None:
    """Its ranks meet where rank 0 is: with the arbitrary distribution, on the host file's first line."""
    job = torch_jobs["backwards"]
    finds_its_places(job, hosts_of(job)[::-1])


@pytest.mark.long
@pytest.mark.parametrize("name", ["accelerate", "lightning"])
def test_libraries_that_know_nothing_of_castoff(name: str, slurm: SlurmCluster, tmp_path: Path) -> None:
    command = [*PROGRAMS, name]
    job = Submitted(slurm, tmp_path, command=command, **TWO)
    finds_its_places(job, hosts_of(job))


_STARTS_ITS_OWN = """\
from pathlib import Path
import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel
trainer = pl.Trainer(accelerator="cpu", devices=2, max_steps=1, logger=False, enable_checkpointing=False)
trainer.fit(BoringModel())
with Path(__file__).with_name("worlds").open("a") as worlds:
    worlds.write(f"{trainer.global_rank} of {trainer.world_size}\\n")
"""


@pytest.mark.costly
def test_lightning_as_a_driver_starts_its_own_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """By SLURM_NTASKS it would take itself for a rank that srun has started, and fail."""
    (tmp_path / "train.py").write_text(_STARTS_ITS_OWN)
    command = [sys.executable, str(tmp_path / "train.py")]
    job = Submitted(slurm, tmp_path, command=command, launcher={"driver": True})
    assert job.ending() == ("done", 0), job.output()
    assert sorted((tmp_path / "worlds").read_text().splitlines()) == ["0 of 2", "1 of 2"]


def hosts_of(job: Submitted) -> list[str]:
    """The hosts of a job that has ended well, in its own order."""
    assert job.ending() == ("done", 0), job.output()
    return (job.run_dir / "attempts/0.0/hosts").read_text().split()


def finds_its_places(job: Submitted, hosts: list[str]) -> None:
    """Its ranks find their places, two on each host, and reach each other at the hosts' own addresses."""
    ranks = job.ranks()
    assert [rank["placed"] for rank in ranks] == [[0, 0, 4], [1, 1, 4], [2, 0, 4], [3, 1, 4]]
    assert [rank["total"] for rank in ranks] == [10] * 4
    assert [rank["host"] for rank in ranks] == [hosts[0], hosts[0], hosts[1], hosts[1]]
    own = {f"10.77.0.{11 + NODES.index(host)}" for host in hosts}
    assert {address for rank in ranks for address in rank["addresses"]} == own


@pytest.mark.parametrize(
    ("name", "visible", "devices"),
    [
        ("gpus-per-node", 2, [0, 1]),
        ("gres", 2, [0, 1]),
        ("gpus-per-task", 1, [0, 0]),
        ("closest", 2, [0, 1]),
        ("same-mask", 2, [0, 1]),
        ("single", 1, [0, 0]),
        ("gpus-shared", 4, [0, 2]),
    ],
)
def test_devices(
    name: str, visible: int, devices: list[int], slurm: SlurmCluster, jobs: dict[str, Submitted]
) -> None:
    """GPUs as each site asks for them: which ones a rank sees, and which of these it is to use."""
    job = jobs[name]
    by_host: dict[int, list[list[str]]] = {}
    for place, rank in zip(placed(job), job.ranks(), strict=True):
        by_host.setdefault(place[-1], []).append(rank["environ"]["CUDA_VISIBLE_DEVICES"].split(","))
        assert rank["detected"]["device"] == int(rank["environ"]["CASTOFF_DEVICE"]) == devices[place[1]]
    used = {
        host: {own[device] for own, device in zip(seen, devices, strict=True)}
        for host, seen in by_host.items()
    }
    assert all(len(each) == 2 for each in used.values()), "ranks of a node share a device"
    assert {len(own) for seen in by_host.values() for own in seen} == {visible}
    allocated = sum(len({device for own in seen for device in own}) for seen in by_host.values())
    shown = slurm.run(HEAD, ["scontrol", "--oneliner", "show", "job", job.id]).stdout
    assert f",gres/gpu={8 if name == 'same-mask' else allocated} " in shown  # that has its nodes whole


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("typed-gpus-per-node", [0, 1]),
        ("typed-gres", [0, 1]),
        ("typed-gpus-per-task", [0, 0]),
        ("typed-raw", [0, 1]),
    ],
)
def test_a_type_of_device(
    name: str, devices: list[int], slurm: SlurmCluster, jobs: dict[str, Submitted]
) -> None:
    """By the job's field, or in Slurm's own words beside devices_per_rank."""
    job = jobs[name]
    assert job.ending() == ("done", 0), job.output()
    assert [rank["detected"]["device"] for rank in job.ranks()] == devices
    shown = slurm.run(HEAD, ["scontrol", "--oneliner", "show", "job", job.id]).stdout
    assert "gpu:a100" in shown and "gres/gpu=2 " in shown


def test_no_devices_unless_asked_for(jobs: dict[str, Submitted]) -> None:
    assert placed(jobs["hosts-2"])
    for rank in jobs["hosts-2"].ranks():
        assert rank["detected"]["device"] is None
        assert not {"CUDA_VISIBLE_DEVICES", "CASTOFF_DEVICE"} & rank["environ"].keys()


def test_cores_of_the_job_are_cores_of_its_step(jobs: dict[str, Submitted]) -> None:
    """srun takes them from its command line alone since Slurm 22.05."""
    assert placed(jobs["cores"]) == blocks(2, 2)
    for rank in jobs["cores"].ranks():
        reported = (
            rank["environ"].get(n) for n in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "OMP_NUM_THREADS")
        )
        assert [*reported] == ["3", "6", "3"]


def test_ranks_that_another_step_holds_up(jobs: dict[str, Submitted]) -> None:
    """srun waits for its CPUs: the job says whom it misses, and ends."""
    job = jobs["held-up"]
    assert job.ending() == ("failed", 1), job.output()
    first, second = (job.run_dir / "attempts/0.0/hosts").read_text().split()
    missing = f"have not started: {first} (ranks 0, 1), {second} (ranks 2, 3)\n"
    assert job.output().count(missing) == 2
    assert f"squeue --steps --job {job.id}" in job.output()
    assert not job.ranks()
