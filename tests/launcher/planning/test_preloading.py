"""`launcher.preload`, decided: what starts it, and with what it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.errors import InvalidInput
from castoff.launcher.planning.render import render
from tests.launcher.planning.test_plan_inputs import derived, planned, refused

PRELOAD = {"preload": ["torch", "my.models"]}
COMMAND = ["python", "-u", "train.py"]


@pytest.mark.parametrize(
    ("site", "argv"),
    [
        ("aurora", ["mpiexec", "-n", "2", "--ppn", "1", "--line-buffer", "--pmi=pmix"]),
        ("pbs", ["mpiexec", "-n", "2"]),
        (
            "slurm",
            [
                *("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1"),
                *("--kill-on-bad-exit=1", "--wait=0", "--export=ALL"),
                *("--overlap", "--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0"),
            ],
        ),
    ],
)
def test_one_process_on_each_node_beside_the_ranks(site: str, argv: list[str]) -> None:
    fields: dict[str, Any] = {"nodes": 2, "ranks_per_node": 4, "cores_per_rank": 2, "command": COMMAND}
    found = planned(site, launcher=PRELOAD, **fields)
    assert (found.preload, found.preload_start) == (PRELOAD["preload"], argv)
    script = render(found)
    assert "\n  -- torch,my.models python -u train.py\ncastoff_start " in script
    assert "castoff_end_agents" in script
    off: dict[str, Any]
    for off in ({}, {"preload": []}):
        plain = planned(site, launcher=off, **fields)
        assert (plain.preload, plain.preload_start) == ([], [])
        assert "preload" not in render(plain)


def test_a_step_of_slurm_asks_for_all_devices_where_steps_have_what_they_ask_for() -> None:
    fields: dict[str, Any] = {"account": "abc123", "walltime": "10m", "nodes": 2, "command": COMMAND}
    found = planned("frontier", launcher=PRELOAD, **fields)
    assert "--gpus-per-node=8" in found.preload_start
    assert "--overlap" in found.preload_start


def test_a_step_of_slurm_asks_for_memory_once() -> None:
    """srun refuses two of its flags for it, and this step has to have what the ranks have."""
    own = ["--mem-per-cpu=2G", "--mem-per-gpu", "9G"]
    site = derived("slurm", launcher_args=own)
    found = planned(site, nodes=2, command=COMMAND, launcher=PRELOAD, preflight=True)
    for argv in (found.preload_start, found.each_host):
        assert [word for word in argv if "mem" in word or word == "9G"] == ["--mem=0"]
    assert found.start[-3:] == own


@pytest.mark.parametrize(
    ("launcher", "words"), [({}, []), ({"preload": []}, ["none"]), (PRELOAD, ["torch,my.models"])]
)
def test_castoff_itself_is_told(launcher: dict[str, Any], words: list[str]) -> None:
    start = planned("local", launcher=launcher, command=COMMAND).start
    assert start[start.index("--preload") + 1 :] == words if words else "--preload" not in start


@pytest.mark.parametrize(
    ("site", "fields", "why"),
    [
        ("slurm", {"launcher": {**PRELOAD, "torchrun": True}}, "torchrun starts the ranks"),
        ("slurm", {"container": {"image": "/a.sif", "runtime": "apptainer"}}, "a container of its own"),
        ("slurm", {"command": ["./train.sh"]}, "command is not"),
        ("slurm", {"command": ["python", "-X", "importtime", "train.py"]}, "command is not"),
        ("local", {"command": ["sh", "-c", "python train.py"]}, "command is not"),
        ("slurm", {"command": ["python", "train.py", ":"]}, "a lone :"),
        ("flux", {}, "flux starts nothing beside the ranks"),
    ],
)
def test_with_what_it_cannot_be(site: str, fields: dict[str, Any], why: str) -> None:
    problems = refused(site, **{"launcher": PRELOAD, "command": COMMAND, **fields})
    assert list(problems) == ["launcher.preload"]
    assert why in problems["launcher.preload"]


@pytest.mark.parametrize("name", ["os path", "a-b", "", "1a", "a..b", "a;b"])
def test_it_names_modules(name: str) -> None:
    with pytest.raises(InvalidInput, match="a module's name"):
        JobSpec.of({"command": COMMAND, "launcher": {"preload": [name]}})
