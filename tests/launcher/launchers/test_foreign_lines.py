"""Launchers' command lines as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.lines import read

NAMES = ("nodes", "ranks", "ranks_per_node", "cpus_per_rank", "devices", "node_devices", "rank_devices")

LINES: dict[str, dict[str, Any]] = {
    "srun -N2 -n 8 -c 4 --gpus-per-task=1 P": {"nodes": 2, "ranks": 8, "cpus_per_rank": 4, "rank_devices": 1},
    "srun --nodes 2 --ntasks-per-node=4 --gres=gpu:4 -lu P": {
        "nodes": 2,
        "ranks_per_node": 4,
        "node_devices": 4,
    },
    "srun --cpu-bind=cores --mpi=pmix --hint=nomultithread P": {
        "launcher.args": ["--cpu-bind=cores", "--mpi=pmix", "--hint=nomultithread"]
    },
    "srun --export=ALL,A=1 --kill-on-bad-exit=1 --wait 0 P": {"env": {"A": "1"}},
    "mpiexec -n 8 --ppn 4 --depth=8 --cpu-bind depth P": {
        "ranks": 8,
        "ranks_per_node": 4,
        "launcher.name": "pals",
        "launcher.args": ["--depth=8", "--cpu-bind", "depth"],
    },
    "mpiexec -np 8 -ppn 4 -genv A 1 -hostfile h P": {
        "ranks": 8,
        "ranks_per_node": 4,
        "env": {"A": "1"},
        "launcher.name": "hydra",
    },
    "/opt/bin/mpirun -np 4 --map-by ppr:2:node:PE=8 -x A=1 -x B --mca btl self P": {
        "ranks": 4,
        "ranks_per_node": 2,
        "cpus_per_rank": 8,
        "env": {"A": "1"},
        "launcher.name": "openmpi",
        "launcher.args": ["--mca", "btl", "self"],
    },
    "mpirun -npernode 2 --bind-to none P": {
        "ranks_per_node": 2,
        "launcher.name": "openmpi",
        "launcher.args": ["--bind-to", "none"],
    },
    "mpirun -x LD_LIBRARY_PATH=/a:$B P": {
        "exports": {"LD_LIBRARY_PATH": "/a:$B"},
        "launcher.name": "openmpi",
    },
    "flux run -N2 -n8 -c4 -g1 -o mpibind=off P": {
        "nodes": 2,
        "ranks": 8,
        "cpus_per_rank": 4,
        "rank_devices": 1,
        "launcher.args": ["--setopt=mpibind=off"],
    },
}


def said(asked: Asked) -> dict[str, Any]:
    found = {name: value for name in NAMES if (value := getattr(asked, name)) is not None}
    found |= {name: value for name in ("env", "exports") if (value := getattr(asked, name))}
    return {**found, **asked.fields}


def test_flags_of_the_program_name_no_mpi() -> None:
    launch = read(["mpirun", "-n", "2", "P", "--bind-to", "core"])
    assert launch is not None and said(launch.asked) == {"ranks": 2}


@pytest.mark.parametrize("line", LINES)
def test_lines(line: str) -> None:
    launch = read([*line.split(), "--its-own", "-n", "1"])
    assert launch is not None
    assert launch.program == ["P", "--its-own", "-n", "1"]
    assert said(launch.asked) == LINES[line]
    assert not [one for one in launch.asked.remarks if one.fate == "not expressed"]


NOT_EXPRESSED = {
    "srun --multi-prog conf": "different programs",
    "srun --het-group=0 P": "heterogeneous",
    "srun -n $N P": "not a number",
    "mpiexec -n 1 P : -n 2 Q": "several programs",
    "mpiexec --configfile f P": "from a file",
    "srun --container-image=/a.sqsh P": "in a container",
    "srun --of-a-plugin=1 P": "does not know --of-a-plugin=1",
}


@pytest.mark.parametrize("line", NOT_EXPRESSED)
def test_what_no_job_file_says_is_said(line: str) -> None:
    launch = read(line.split())
    assert launch is not None
    refused = [one.text for one in launch.asked.remarks if one.fate == "not expressed"]
    assert len(refused) == 1 and NOT_EXPRESSED[line] in refused[0]


@pytest.mark.parametrize("line", ["python train.py", "flux resource list", "flux submit a", "echo srun"])
def test_others_are_none(line: str) -> None:
    assert read(line.split()) is None
