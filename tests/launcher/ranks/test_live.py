"""RankEnv under the launchers of this machine, each told by its own labels what is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import patience

pytestmark = pytest.mark.usefixtures("for_real")

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, os
from castoff.launcher.ranks import RankEnv
me = RankEnv.detect()
told = {name: getattr(me, name) for name in RankEnv._fields if name != "sources"}
me.export()
told["exported"] = [os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], os.environ["RANK"]]
with open(f"{os.environ['TO']}/{me.rank}.json", "x") as file:
    json.dump(told, file)
"""
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


def start(folder: Path, command: list[str], **more: str) -> list[dict[str, Any]]:
    """Run the program under a launcher; what its ranks found, in order. No two may be the same."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [*command, str(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TO": str(folder), **more},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted(folder.glob("*.json"))
    return [json.loads(path.read_text()) for path in files]


def check(ranks: list[dict[str, Any]], launcher: str, size: int = 2) -> None:
    assert [reported["rank"] for reported in ranks] == list(range(size))
    for reported in ranks:
        assert reported["launcher"] == launcher
        assert (reported["world_size"], reported["local_world_size"]) == (size, size)
        assert (reported["local_rank"], reported["node_rank"]) == (reported["rank"], 0)
        assert reported["exported"] == [
            *(reported["master_addr"], str(reported["master_port"]), str(reported["rank"]))
        ]
    assert len({(reported["master_addr"], reported["master_port"]) for reported in ranks}) == 1


Find = Callable[[str, str], Path]


def mpiexec(find: Find, kind: str) -> list[str]:
    """The command that starts two ranks with one of Debian's two mpiexecs."""
    if kind == "hydra":
        return [str(find("mpiexec.mpich", "mpich")), "-n", "2", sys.executable]
    program = str(find("mpiexec.openmpi", "openmpi-bin"))
    return [program, *AS_ROOT, "--oversubscribe", "-n", "2", sys.executable]


@pytest.mark.parametrize("kind", ["hydra", "openmpi"])
def test_mpiexec(tmp_path: Path, system_program: Find, kind: str) -> None:
    check(start(tmp_path, mpiexec(system_program, kind)), kind)


@pytest.mark.parametrize("kind", ["hydra", "openmpi"])
def test_mpiexec_inside_a_rank_that_castoff_started(tmp_path: Path, system_program: Find, kind: str) -> None:
    outer = {"CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": "1/4", "CASTOFF_DEVICE": "1"}
    outer |= {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    outer |= {"NODE_RANK": "0", "MASTER_ADDR": "outer", "MASTER_PORT": "20000"}
    ranks = start(tmp_path, mpiexec(system_program, kind), **outer)
    check(ranks, kind)
    assert {reported["device"] for reported in ranks} == {None}
    assert {reported["master_addr"] for reported in ranks} == {"127.0.0.1"}


def test_mpiexec_with_a_left_over_triple_starts_nothing(tmp_path: Path, system_program: Find) -> None:
    trap = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with pytest.raises(AssertionError, match="unset RANK WORLD_SIZE LOCAL_RANK"):
        start(tmp_path, mpiexec(system_program, "hydra"), **trap)


def torchrun(*words: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *words]


def test_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ranks = start(tmp_path, torchrun("--standalone", "--nproc-per-node", "2"))
    check(ranks, "torchrun")


def test_torchrun_inside_a_rank_that_castoff_started(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    outer = {"CASTOFF_LAUNCHER": "srun", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    outer |= {"LOCAL_WORLD_SIZE": "2", "NODE_RANK": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
    outer |= {"SLURM_NODEID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "1"}
    outer |= {"SLURM_STEP_TASKS_PER_NODE": "2(x2)", "CASTOFF_DEVICE": "1"}
    ranks = start(tmp_path, torchrun("--standalone", "--nproc-per-node", "2"), **outer)
    check(ranks, "torchrun")
    assert {reported["device"] for reported in ranks} == {None}
