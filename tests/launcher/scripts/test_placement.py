"""Every launcher: each rank is told who it is, whatever the environment held before, and gets the
program's words byte for byte."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff.launcher.config.site_fields import Node
from tests.cases import others_long
from tests.hostile import ARGUMENTS

from .conftest import Benches
from .harness import CASTOFF, LAUNCHER, PROBE, STALE, STALE_SLURM, Bench

KINDS: dict[str, dict[str, Any]] = {
    "local": {"ranks_per_node": 3},
    "hydra": {"ranks_per_node": 3},
    "openmpi": {"ranks_per_node": 3},
    "pals": {"nodes": 2, "ranks_per_node": 6},
    "srun": {"nodes": 2, "ranks": 3, "devices_per_rank": 1},
}
INTEL_MPI = Path(sys.prefix) / "intelmpi" / "bin" / "mpiexec.hydra"
LAUNCHERS = {"srun": "srun", "pals": "pals"}


def local_ranks(kind: str) -> list[tuple[int, int, int]]:
    """(node, local rank, local size) of each rank of `KINDS`."""
    if kind == "pals":
        return [(rank // 6, rank % 6, 6) for rank in range(12)]
    if kind == "srun":
        return [(0, 0, 2), (0, 1, 2), (1, 0, 1)]
    return [(0, rank, 3) for rank in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_rank_knows_who_it_is_and_gets_the_words(kind: str, bench: Benches) -> None:
    stale = STALE if kind in ("srun", "local") else {**STALE, **STALE_SLURM}
    here = bench(kind, folder='it\'s a "folder", $HOME')
    variables = {f"HOSTILE_{number}": word for number, word in enumerate(ARGUMENTS)}
    decided = here.plan_of(command=[*PROBE, *ARGUMENTS], **KINDS[kind], env=variables)
    ended = here.start_plan(decided, env=stale).end()
    assert ended.code == 0, ended.output
    assert ended.ending == ("done", 0)
    ranks, expected = here.ranks(), local_ranks(kind)
    assert len(ranks) == len(expected)
    for number, (seen, (node, local, size)) in enumerate(zip(ranks, expected, strict=True)):
        assert seen["argv"] == ARGUMENTS
        assert {name: seen["environ"].get(name) for name in variables} == variables
        assert seen["cwd"] == str(here.folder)
        reported = {"RANK": number, "WORLD_SIZE": len(ranks), "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": size}
        reported |= {"NODE_RANK": node}
        assert {name: seen["environ"].get(name) for name in reported} == {
            k: str(v) for k, v in reported.items()
        }
        assert seen["environ"]["CASTOFF_LAUNCHER"] == kind
        assert seen["environ"]["CASTOFF_RANK"] == f"{number}/{len(ranks)}"
        if kind not in ("srun", "local"):
            assert not [name for name in seen["environ"] if name.startswith("SLURM_")]
        detected = seen["detected"]
        assert {name.lower(): detected[name.lower()] for name in reported} == {
            k.lower(): v for k, v in reported.items()
        }
        assert detected["launcher"] == kind
        assert detected["master_addr"] == seen["environ"]["MASTER_ADDR"]
        assert str(detected["master_port"]) == seen["environ"]["MASTER_PORT"]
    meeting = {(seen["environ"]["MASTER_ADDR"], seen["environ"]["MASTER_PORT"]) for seen in ranks}
    assert len(meeting) == 1


def test_addresses_and_devices_of_aurora(bench: Benches) -> None:
    here = bench("pals")
    assert here.run(nodes=2, ranks_per_node=6).code == 0
    for seen in here.ranks():
        environ = seen["environ"]
        assert environ["MASTER_ADDR"] == "x0.hsn.cm.aurora.alcf.anl.gov"
        assert 20000 <= int(environ["MASTER_PORT"]) < 30000
        assert environ["ZE_AFFINITY_MASK"] == "0,2,4,6,8,10"  # six GPUs, not half of the node
        assert seen["detected"]["device"] == int(environ["LOCAL_RANK"])
        assert environ["OMP_NUM_THREADS"] == "17"
    (call,) = here.calls("mpiexec")
    assert call[: call.index("--pmi=pmix") + 1][:4] == ["-n", "12", "--ppn", "6"]


# Of each local rank: the physical device that its library finds under CASTOFF_DEVICE.
DEVICES = {
    ("polaris", 1): [3],
    ("polaris", 2): [3, 1],
    ("polaris", 4): [3, 2, 1, 0],
    ("perlmutter", 1): [3],
    ("perlmutter", 2): [3, 1],
    ("perlmutter", 4): [3, 2, 1, 0],
}


@pytest.mark.long
@pytest.mark.parametrize(
    "case", others_long(DEVICES, [("polaris", 2), ("perlmutter", 4)]), ids=lambda case: f"{case[0]}-{case[1]}"
)
def test_a_rank_finds_the_device_beside_its_cores(case: tuple[str, int], bench: Benches) -> None:
    site, each = case
    here = bench(site)
    ended = here.run(nodes=2, ranks_per_node=each, env=STALE)
    assert ended.code == 0, ended.output
    ranks = here.ranks()
    assert len(ranks) == 2 * each
    found = []
    for seen in ranks:
        visible = seen["environ"]["CUDA_VISIBLE_DEVICES"].split(",")
        found.append(int(visible[seen["detected"]["device"]]))
    assert found == DEVICES[site, each] * 2
    assert [seen["detected"]["local_rank"] for seen in ranks] == [*range(each)] * 2


@pytest.mark.long
def test_addresses_and_cores_of_polaris(bench: Benches) -> None:
    here = bench("polaris")
    assert here.run(nodes=2).code == 0
    (call,) = here.calls("mpiexec")
    assert call[:6] == ["-n", "8", "--ppn", "4", "--cpu-bind", "list:0-7:8-15:16-23:24-31"]
    assert here.calls("module") == [["use", "/soft/modulefiles"]]
    for seen in here.ranks():
        assert seen["environ"]["MASTER_ADDR"] == "x0.hsn.cm.polaris.alcf.anl.gov"
        assert seen["environ"]["OMP_NUM_THREADS"] == "8"


def test_perlmutters_ranks_get_cores_as_slurm_counts_them(bench: Benches) -> None:
    here = bench("perlmutter")
    assert here.run().code == 0
    (call,) = here.calls("srun")
    assert {"--ntasks-per-node=4", "--cpus-per-task=32", "--cpu-bind=cores"} <= set(call)
    assert {seen["environ"]["OMP_NUM_THREADS"] for seen in here.ranks()} == {"16"}
    assert {seen["environ"]["NCCL_SOCKET_IFNAME"] for seen in here.ranks()} == {"hsn"}


def test_in_a_shared_node_slurm_numbers_the_devices(bench: Benches) -> None:
    here = bench("perlmutter")
    assert here.run(qos="shared").code == 0
    assert [seen["detected"]["device"] for seen in here.ranks()] == [0, 1]
    assert not [seen for seen in here.ranks() if "CUDA_VISIBLE_DEVICES" in seen["environ"]]


@pytest.mark.long
def test_each_of_frontiers_ranks_sees_one_device(bench: Benches) -> None:
    here = bench("frontier")
    ended = here.run(nodes=2, env=STALE)
    assert ended.code == 0, ended.output
    ranks = here.ranks()
    assert len(ranks) == 16
    assert {seen["detected"]["device"] for seen in ranks} == {0}
    assert [int(seen["environ"]["ROCR_VISIBLE_DEVICES"]) for seen in ranks] == [*range(8)] * 2, "srun's own"
    (call,) = here.calls("srun")
    assert {"--cpus-per-task=7", "--gpus-per-task=1", "--gpu-bind=closest"} <= set(call)
    caches = {seen["environ"]["MIOPEN_USER_DB_PATH"] for seen in ranks}
    assert caches == {"/tmp/miopen-12"} == {seen["environ"]["MIOPEN_CUSTOM_CACHE_DIR"] for seen in ranks}


BOUND: dict[tuple[str, str], tuple[dict[str, Any], list[tuple[list[int], str, int]]]] = {
    ("hydra", "flags"): (
        {"launcher": {"args": ["-bind-to", "user:1,0"]}},
        [([1], "1,0", 0), ([0], "1,0", 1)],
    ),
    ("hydra", "binding"): ({"binding": "1:0"}, [([1], "1,0", 0), ([0], "1,0", 1)]),
    ("hydra", "core"): ({"launcher": {"args": ["-bind-to", "core:1"]}}, [([0], "0,1", 0), ([1], "0,1", 1)]),
    ("hydra", "castoff"): ({}, [([0], "0,1", 0), ([1], "0,1", 1)]),
    ("hydra", "none"): (
        {"launcher": {"args": ["-bind-to", "none"]}},
        [([0, 1], "0,1", 0), ([0, 1], "0,1", 1)],
    ),
    ("openmpi", "core"): ({"launcher": {"args": ["--bind-to", "core"]}}, [([0], "0,1", 0), ([1], "0,1", 1)]),
    ("openmpi", "castoff"): ({}, [([0], "0,1", 0), ([1], "0,1", 1)]),
    ("openmpi", "none"): (
        {"launcher": {"args": ["--bind-to", "none"]}},
        [([0, 1], "0,1", 0), ([0, 1], "0,1", 1)],
    ),
    ("intelmpi", "binding"): ({"binding": "1:0"}, [([1], "1,0", 0), ([0], "1,0", 1)]),
}
"""What binds two ranks; of each rank the CPUs, what shows it devices, and its own among these."""


@pytest.mark.skipif({0, 1} - os.sched_getaffinity(0) != set(), reason="needs the CPUs 0 and 1")
@pytest.mark.parametrize("case", others_long(BOUND, [("hydra", "flags")]), ids=lambda case: "-".join(case))
def test_devices_follow_what_a_real_mpiexec_binds(case: tuple[str, str], bench: Benches) -> None:
    kind, (fields, expected) = case[0], BOUND[case]
    here = bench("hydra" if kind == "intelmpi" else kind)
    own = {"CUDA_VISIBLE_DEVICES": "0,1"}  # as PBS shows a job its devices
    if kind == "intelmpi":
        if not INTEL_MPI.exists():
            pytest.skip("make .venv/intelmpi/.ready")
        own |= {"I_MPI_ROOT": str(INTEL_MPI.parents[1]), "FI_PROVIDER": "tcp"}
        here.site = msgspec.structs.replace(here.site, launcher="intelmpi", mpiexec=str(INTEL_MPI))
    node = Node(
        sockets=["0", "1"],
        devices=[1, 1],
        device_variable="CUDA_VISIBLE_DEVICES",
        exclusive=True,
        source="lscpu",
        date="2026-11-26",
    )
    here.site = msgspec.structs.replace(here.site, node=node)
    ended = here.run(
        ranks_per_node=2, setup=[f"export {name}={value}" for name, value in own.items()], **fields
    )
    assert ended.code == 0, ended.output
    found = [
        (seen["cpus"], seen["environ"]["CUDA_VISIBLE_DEVICES"], seen["detected"]["device"])
        for seen in here.ranks()
    ]
    assert found == expected
    assert "data crosses the node" not in ended.output


@pytest.mark.long
def test_devices_count_within_a_mask_of_the_jobs(bench: Benches) -> None:
    here = bench("srun")
    devices: dict[str, Any] = {"ranks_per_node": 2, "devices_per_rank": 1}
    assert here.run(setup=["export CUDA_VISIBLE_DEVICES=6,7"], **devices).code == 0
    assert [seen["detected"]["device"] for seen in here.ranks()] == [0, 1]
    alone = bench("srun", folder="alone")
    assert alone.run(env={"CUDA_VISIBLE_DEVICES": "6"}, **devices).code == 0
    assert [seen["detected"]["device"] for seen in alone.ranks()] == [0, 0]


def test_more_ranks_than_a_mask_shows_devices(bench: Benches) -> None:
    """They would share devices, and nobody would say so."""
    here = bench("pals")
    ended = here.run(nodes=2, ranks_per_node=12, setup=["export ZE_AFFINITY_MASK=0,1,2,3"])
    assert ended.code != 0 and ended.ending[0] == "failed"
    assert (
        "from 0, but ZE_AFFINITY_MASK=0,1,2,3 shows it 4. Have ZE_AFFINITY_MASK show as many" in ended.output
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "own", [[], ["--gpu-bind=list:5.1:5.0:4.1:4.0"]], ids=["castoff's", "the launcher's"]
)
def test_tiles_of_composite_devices(own: list[str], bench: Benches) -> None:
    """Each rank is shown its own, by castoff's mask or by the launcher's, which then stays as it is."""
    here = bench("pals")
    shown = ["export ZE_AFFINITY_MASK=5.1"] if own else []  # as mpiexec would, for each rank
    fields: dict[str, Any] = {"options": ["composite"], "launcher": {"args": own}, "setup": shown}
    ended = here.run(ranks_per_node=4, devices_per_rank=1 if own else 2, **fields)
    assert ended.code == 0, ended.output
    masks = [seen["environ"]["ZE_AFFINITY_MASK"] for seen in here.ranks()]
    assert masks == (["5.1"] * 4 if own else ["0.0,0.1", "1.1,2.0", "3.0,3.1", "4.1,5.0"])
    assert {seen["environ"]["ZE_FLAT_DEVICE_HIERARCHY"] for seen in here.ranks()} == {"COMPOSITE"}
    assert {seen["detected"]["device"] for seen in here.ranks()} == {0}


@pytest.mark.long
def test_shared_tiles_have_a_mask_each(bench: Benches) -> None:
    here = bench("pals")
    assert here.run(nodes=1, ranks_per_node=24).code == 0
    masks = [seen["environ"]["ZE_AFFINITY_MASK"] for seen in here.ranks()]
    assert masks == [str(rank // 2) for rank in range(24)]
    assert {seen["detected"]["device"] for seen in here.ranks()} == {0}


def addresses(here: Bench) -> set[str]:
    """Where the ranks are told to meet."""
    return {seen["environ"]["MASTER_ADDR"] for seen in here.ranks()}


def unknown_to_ranks(here: Bench, *names: str) -> None:
    """Names that the batch script's host knows, and those of the ranks do not."""
    reported = f'import os, sys\nos.environ["STUB_UNKNOWN"] = "|{"|".join(names)}|"'
    here.stub("srun", (here.bin / "srun").read_text().replace("import sys", reported, 1))


def test_ranks_of_one_host_meet_on_its_loopback(bench: Benches) -> None:
    here = bench("srun")
    assert here.run(ranks_per_node=2).code == 0
    assert addresses(here) == {"127.0.0.1"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("unknown", "address"),
    [
        ([], "x0.fast"),
        (["x0.fast"], "x0"),
        (["x0.fast", "x0"], "x0.slow.example"),
        (["x0.fast", "x0", "x0.slow.example"], "10.0.0.7"),
    ],
)
def test_ranks_meet_by_the_first_name_that_their_hosts_know(
    unknown: list[str], address: str, bench: Benches
) -> None:
    """The short name with the site's suffix, the short name, the full name, the address."""
    here = bench("srun")
    here.site = msgspec.structs.replace(here.site, master_suffix=".fast")
    unknown_to_ranks(here, *unknown)
    ended = here.run(nodes=2, env={"STUB_HOSTS": "x0.slow.example\nx1.slow.example"})
    assert ended.code == 0, ended.output
    assert addresses(here) == {address}


@pytest.mark.long
def test_an_address_is_taken_whole(bench: Benches) -> None:
    here = bench("srun")
    assert here.run(nodes=2, env={"STUB_HOSTS": "10.0.0.7\n10.0.0.8"}).code == 0
    assert addresses(here) == {"10.0.0.7"}


def test_a_host_that_knows_no_name_of_rank_0s_host_is_an_error(bench: Benches) -> None:
    here = bench("srun")
    unknown_to_ranks(here, "x0", "10.0.0.7")
    ended = here.run(nodes=2)
    assert ended.code != 0 and not here.ranks()
    assert "knows no address of rank 0's host, so the ranks cannot meet; it tried x0" in ended.output
    assert "master_suffix" in ended.output


def test_rank_0_on_another_host_than_the_meeting_place_is_an_error(bench: Benches) -> None:
    here = bench("srun")
    ended = here.run(nodes=2, env={"SLURMD_NODENAME": "x1"})
    assert ended.code != 0 and not here.ranks()
    assert "rank 0 runs on x1, but the ranks are to meet on x0" in ended.output


@pytest.mark.long
def test_a_node_file_with_blank_lines_and_two_names_of_a_host(bench: Benches) -> None:
    here = bench("pals")
    here.nodefile = "x0\n\nx0.cluster\nx1.cluster\n  \nx1\nx1.cluster\n"
    ended = here.run(nodes=2, ranks_per_node=2)
    assert ended.code == 0, ended.output
    assert (ended.run_dir / "attempts" / "0.0" / "hosts").read_text() == "x0\nx1.cluster\n"


@pytest.mark.long
def test_no_address_is_run(bench: Benches, tmp_path: Path) -> None:
    """What a node file holds is not shell code, also not to the bash that tries ports."""
    here = bench("srun")
    hosts = f"$(touch {tmp_path}/run)\nx1"
    decided = here.plan_of(nodes=2, env={"BASH_ENV": f"$(touch {tmp_path}/sourced)"})
    here.start_plan(decided, env={"STUB_HOSTS": hosts}).end()
    assert not (tmp_path / "run").exists() and not (tmp_path / "sourced").exists()


@pytest.mark.long
@pytest.mark.parametrize("kind", others_long(["srun", "pals", "hydra", "openmpi"], ["pals"]))
def test_a_program_that_is_called_like_a_word_of_the_shell(kind: str, bench: Benches) -> None:
    """Neither a shell's own word nor a function of the script's."""
    here = bench(kind)
    for name in ("eval", "refuse", "if", "export"):
        here.stub(name, f'#!/bin/sh\nexec {" ".join(PROBE)} {name} "$@"\n')
        ended = here.run(command=[name, "a\\nb", "touch x"], ranks_per_node=1)
        assert ended.code == 0, ended.output
        assert here.ranks()[0]["argv"] == [name, "a\\nb", "touch x"]


def test_long_words_beside_a_lone_colon(bench: Benches) -> None:
    """Each word may be as long as the kernel takes, also where a shell has to stand before them."""
    here = bench("srun")
    words = ["x" * 100_000, ":", "y" * 100_000, "", ":"]
    ended = here.run(command=[*PROBE, *words])
    assert ended.code == 0, ended.output[:2000]
    assert here.ranks()[0]["argv"] == words


def test_a_taken_port_is_left_alone(bench: Benches) -> None:
    here = bench("hydra")
    shutil.rmtree(here.run().run_dir)  # so that the next is the same attempt once more
    first = int(here.ranks()[0]["environ"]["MASTER_PORT"])
    with socket.create_server((socket.gethostname(), first)):
        assert here.run().code == 0
    assert int(here.ranks()[0]["environ"]["MASTER_PORT"]) == first + 1


@pytest.mark.long
def test_members_and_attempts_meet_at_ports_of_their_own(bench: Benches) -> None:
    ports = set()
    for index in (0, 1):
        here = bench("srun", folder=f"member-{index}")
        here.array_index = index
        assert here.run(array={"count": 2}).code == 0
        ports.add(here.ranks()[0]["environ"]["MASTER_PORT"])
    restarted = bench("srun", folder="restarted")
    assert restarted.run(env={"SLURM_RESTART_COUNT": "1"}).code == 0
    ports.add(restarted.ranks()[0]["environ"]["MASTER_PORT"])
    assert len(ports) == 3


@pytest.mark.long
def test_torchrun_is_started_once_a_node_and_believed(bench: Benches) -> None:
    pytest.importorskip("torch")
    here = bench("hydra")
    ended = here.run(ranks_per_node=2, launcher={"torchrun": True}, env=STALE)
    assert ended.code == 0, ended.output
    assert [seen["detected"]["launcher"] for seen in here.ranks()] == ["torchrun"] * 2
    assert [seen["environ"]["LOCAL_RANK"] for seen in here.ranks()] == ["0", "1"]
    assert (ended.run_dir / "logs" / "0.0" / "node-00000.log").is_file()


@pytest.mark.everyday("srun")
@pytest.mark.parametrize("kind", ["srun", "pals"])
def test_a_node_that_does_not_see_the_run_directory(kind: str, bench: Benches, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give each node a file system of its own")
    here = bench(kind)
    own = {"STUB_LOCAL_STORAGE": str(here.folder)}
    here.stub("sleep", "#!/bin/sh\n")  # for the minute in which a node may come to see it
    ended = here.run(nodes=2, ranks_per_node=2, command=["/bin/sleep", "60"], env=own)
    assert ended.ending[0] == "failed" and ended.code != 0
    attempt = ended.run_dir / "attempts" / "0.0"
    assert (
        f"castoff: x1 does not see {attempt}: a run directory must lie where all nodes see it" in ended.output
    )


def test_a_node_that_sees_the_run_directory_late(bench: Benches) -> None:
    """The ranks of that node wait for it; here all do, as rank.sh is hidden until somebody has waited."""
    here = bench("srun")
    folder = here.folder / "castoff-12/attempts/0.0"
    srun = (here.bin / "srun").read_text().partition("\n")
    hide = (
        f"import os; os.path.exists('{folder}/rank.sh') and os.rename('{folder}/rank.sh', '{folder}/hidden')"
    )
    here.stub("srun", f"{srun[0]}\n{hide}\n{srun[2]}")
    here.stub("sleep", f"#!/bin/sh\n[ ! -e '{folder}/hidden' ] || mv '{folder}/hidden' '{folder}/rank.sh'\n")
    ended = here.run(ranks_per_node=2)
    assert ended.ending == ("done", 0), ended.output
    assert len(here.ranks()) == 2


def test_a_launcher_that_lays_ranks_out_otherwise_is_refused(bench: Benches) -> None:
    here = bench("pals")
    seven_first = "[(rank // 7, rank % 7, 7 if rank < 7 else 5) for rank in range(12)]"
    mixed = LAUNCHER.replace(
        "sys.exit(", f"main.__globals__['placement'] = lambda *_: {seven_first}\nsys.exit("
    )
    here.stub("mpiexec", mixed)
    ended = here.run(nodes=2, ranks_per_node=6)
    assert ended.code != 0 and ended.ending[0] == "failed"
    assert "this script lays 6 out there" in ended.output


def test_a_launcher_that_sets_no_rank_is_refused(bench: Benches) -> None:
    here = bench("srun")
    here.stub(
        "srun",
        '#!/bin/sh\nfor word; do last=$word; done\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n',
    )
    ended = here.run(env=STALE)
    assert ended.code != 0
    assert "castoff: srun did not say which rank this is" in ended.output
    assert here.ranks() == []


def test_local_script_finds_castoff_on_path(bench: Benches) -> None:
    here = bench("local")
    here.env = {"CASTOFF_COMMAND": "", "PATH": f"{Path(CASTOFF).parent}{os.pathsep}{os.environ['PATH']}"}
    assert here.run(ranks_per_node=2).code == 0
    assert len(here.ranks()) == 2
