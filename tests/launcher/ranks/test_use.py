"""What a rank exports, what a start block unsets, what people are told."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks import RankEnv, explain, explain_json, is_stale

from .support import (
    RECORDINGS,
    TRAP,
    detect,
    each_rank,
    place,
    rank,
    refusal,
    shim,
    shim_of,
)

ROOT = Path(__file__).parents[3]


# What a rank exports


@each_rank()
def test_exported_variables_give_the_same_rank_again(name: str, index: int) -> None:
    environ = {**rank(name, index)}
    me = detect(environ, name)
    if me.master_addr is None:
        with pytest.raises(PlacementError, match="export MASTER_ADDR=<host of rank 0>"):
            me.export(environ)
        environ["MASTER_ADDR"] = "n1"
        me = detect(environ, name)
    before = {n: environ.get(n) for n in ("MASTER_ADDR", "MASTER_PORT")}
    me.export(environ)
    assert environ["RANK"] == str(me.rank)
    assert environ["LOCAL_WORLD_SIZE"] == str(me.local_world_size)
    assert environ["MASTER_ADDR"] and environ["MASTER_PORT"]
    if me.launcher == "torchrun":
        assert before == {n: environ[n] for n in before}
    again = detect(environ, name)
    assert place(again) == place(me)
    assert (again.master_addr, again.master_port) == (me.master_addr, me.master_port)


def test_export_under_torchrun_leaves_the_rendezvous_alone() -> None:
    me = detect(rank("torchrun-one-host"))
    other: dict[str, str] = {}
    me.export(other)
    assert sorted(other) == ["LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "RANK", "WORLD_SIZE"]


def test_export_removes_what_belongs_to_the_task_around() -> None:
    environ = {**shim("local", 1, 2, 1, 2, 0, CASTOFF_RANK="1/2"), **rank("openmpi-uneven", 3)}
    environ["NODE_RANK"] = "0"
    with pytest.raises(PlacementError):
        detect(environ).export(environ)  # the outer MASTER_ADDR is not its own
    environ |= rank("openmpi-one-host", 1)
    me = detect(environ)
    me.export(environ)
    assert not {"CASTOFF_LAUNCHER", "CASTOFF_RANK", "CASTOFF_DEVICE"} & set(environ)
    assert detect(environ) == me


def test_export_removes_a_node_rank_that_is_not_known() -> None:
    environ = {**rank("openmpi-uneven", 3), "MASTER_ADDR": "n1", "NODE_RANK": "7"}
    detect(environ).export(environ)
    assert "NODE_RANK" not in environ


def test_export_keeps_castoffs_own_marks() -> None:
    environ = shim("local", 1, 2, 1, 2, 0)
    detect(environ).export(environ)
    assert environ == shim("local", 1, 2, 1, 2, 0)


def test_export_writes_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    RankEnv.detect({}).export()
    assert os.environ["WORLD_SIZE"] == "1"


def test_variables_leave_out_what_is_unknown() -> None:
    reported = detect(rank("hydra-uneven", 3)).variables()
    assert "NODE_RANK" not in reported and "MASTER_ADDR" not in reported
    assert reported["LOCAL_WORLD_SIZE"] == "1"


# What a start block unsets


@each_rank()
def test_nothing_is_left_of_a_rank_after_unsetting(name: str, index: int) -> None:
    environ = {**rank(name, index), **shim_of(name, index, CASTOFF_RANK="1/2")}
    left = {n: text for n, text in environ.items() if not is_stale(n)}
    sizes = {left.get(n, "1") for n in ("SLURM_NTASKS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")}
    if sizes != {"1"} or "PBS_NODEFILE" in left:
        assert "not a rank" in refusal(left, name)
    else:
        assert detect(left, name).launcher == "single"


def test_start_block_unsets_no_input_of_a_launcher() -> None:
    inputs = (
        *("PALS_PMI", "PALS_PING_PERIOD", "PALS_NRANKS", "PALS_PPN", "SLURM_JOB_ID", "SLURM_CONF"),
        *("SLURM_JOBID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NODELIST"),
        *("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "PBS_NODEFILE"),
        *("SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "FLUX_URI", "FLUX_JOB_ID"),
        "OMPI_MCA_btl",
    )
    assert not [name for name in inputs if is_stale(name)]


# RankEnv itself


def test_rank_env_is_immutable_and_comparable() -> None:
    me = detect(rank("srun-two-nodes", 1))
    with pytest.raises(AttributeError, match="set"):
        me.rank = 0
    with pytest.raises(AttributeError):
        del me.rank
    with pytest.raises(AttributeError):
        me.anything = 0  # type: ignore[attr-defined]
    assert me == detect(rank("srun-two-nodes", 1))
    assert me != detect(rank("srun-two-nodes", 2))
    assert me != "rank 1"
    assert len({me, detect(rank("srun-two-nodes", 1))}) == 1
    for twin in (pickle.loads(pickle.dumps(me)), copy.deepcopy(me), eval(repr(me))):
        assert twin == me and twin.sources == me.sources


# What people are told


def test_explain_a_rank() -> None:
    text = explain(rank("srun-uneven", 2))
    assert "This process is rank 2 of 4, local rank 2 of 3, node 0." in text
    assert "Started by: Slurm's srun" in text
    assert "SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID" in text


def test_explain_who_has_started_it() -> None:
    assert "(through castoff)" in explain(shim("local", 1, 2, 1, 2, 0))
    text = explain({**shim("local", 1, 2, 1, 2, 0), **rank("openmpi-one-host", 1)})
    assert "Started by: Open MPI's mpiexec\n" in text
    assert "MASTER_ADDR is unknown" in explain(rank("hydra-uneven"))


def test_explain_the_placement_that_is_in_effect() -> None:
    environ = {**shim("srun", 1, 2, 1, 2, 0), "CASTOFF_DEVICE": "1", "ROCR_VISIBLE_DEVICES": "3,2"}
    mine = cpulist(sorted(os.sched_getaffinity(0)))
    assert explain_json(environ)["cpus"] == mine
    assert explain_json(environ)["masks"] == {"ROCR_VISIBLE_DEVICES": "3,2"}
    lines = [line.split() for line in explain(environ).splitlines()]
    assert [
        "device",
        "1",
        "CASTOFF_DEVICE:",
        "its",
        "index",
        "among",
        "those",
        "that",
        "are",
        "shown",
    ] in lines
    assert ["CPUs", mine, "what", "it", "may", "run", "on", "(Cpus_allowed_list)"] in lines
    assert ["devices", "shown", "3,2", "ROCR_VISIBLE_DEVICES"] in lines


def test_explain_an_error_shows_the_fix_and_what_is_set() -> None:
    environ = {**rank("srun-two-nodes", 1), **TRAP, "WANDB_API_KEY": "secret"}
    text = explain(environ)
    assert text.startswith("The rank of this process is not known.")
    assert "unset RANK WORLD_SIZE LOCAL_RANK" in text
    assert "  SLURM_PROCID=1" in text
    assert "secret" not in text


def test_explain_json() -> None:
    reported = explain_json(rank("hydra-in-slurm", 3))
    assert json.loads(json.dumps(reported)) == reported
    assert reported["error"] is None and reported["started_by_castoff"] is False
    assert reported["placement"]["node_rank"] == 1
    assert reported["variables"]["RANK"] == "3"
    assert reported["sources"]["rank"] == "PMI_RANK"
    assert "unset" in explain_json({"RANK": "0"})["error"]


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_module_runs_without_site_packages() -> None:
    done = run("-m", "castoff.launcher.ranks", **rank("openmpi-one-host", 1))
    assert (done.returncode, done.stderr) == (0, "")
    assert "rank 1 of 2" in done.stdout
    done = run("-m", "castoff.launcher.ranks", "--json", **rank("openmpi-one-host", 1))
    assert json.loads(done.stdout)["placement"]["rank"] == 1


def test_module_exits_1_when_the_rank_is_unknown() -> None:
    done = run("-m", "castoff.launcher.ranks", RANK="0")
    assert (done.returncode, done.stderr) == (1, "")
    assert "unset RANK" in done.stdout
    done = run("-m", "castoff.launcher.ranks", "--json", RANK="0")
    assert done.returncode == 1 and "unset RANK" in json.loads(done.stdout)["error"]
    assert "usage" in run("-m", "castoff.launcher.ranks", "--what").stderr


def test_import_and_detect_load_nothing_slow() -> None:
    """Every rank pays for these; `typing` alone costs more than all of `castoff.launcher.ranks`."""
    code = (
        "import __future__, collections, os, sys, zlib; before = set(sys.modules);"
        " from castoff.launcher.ranks import RankEnv; RankEnv.detect();"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = run("-c", code)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded == {"castoff"}


def test_commands_of_the_documentation_run() -> None:
    blocks = (ROOT / "docs/reference/ranks.md").read_text().split("```")[1::2]
    kinds = [block.partition("\n")[0] for block in blocks]
    assert kinds == ["python", "sh", "console", "python", "sh"]
    for block in blocks:
        kind, _, text = block.partition("\n")
        if kind != "sh":  # as on every page: tests/test_documents.py
            continue
        done = subprocess.run(["sh", "-ec", text], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), text


def test_documentation_lists_which_launchers_were_seen_running() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (ROOT / "docs/reference/ranks.md").read_text().splitlines()
        if line.count("|") == 7 and not line.startswith("|---")
    ]
    reported = {row[0].split()[0]: row[5] for row in rows[1:]}
    seen = {launcher for launcher, checked in reported.items() if checked.startswith("real run")}
    recorded = {one["launcher"] for one in RECORDINGS.values() if not one.get("documented_only")}
    assert seen == recorded - {"", "single"}
    assert {s for s, checked in reported.items() if checked == "documentation only"} == {
        one["launcher"] for one in RECORDINGS.values() if one.get("documented_only")
    } - recorded
