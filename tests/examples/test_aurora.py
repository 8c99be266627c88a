"""The job files of examples/aurora, as the scripts that ALCF's mpiexec would get."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from castoff import JobSpec, Plan, Site, plan, render
from tests.conftest import Castoff

FOLDER = Path(__file__).parents[2] / "examples" / "aurora"
JOB_FILES = sorted(FOLDER.glob("*.yaml"))


def planned(name: str) -> Plan:
    return plan(JobSpec.load(FOLDER / name), Site.load("aurora"))


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.name)
def test_the_command_of_the_comment(path: Path, castoff: Castoff) -> None:
    (words,) = re.findall(r"^#   castoff (.*)$", path.read_text(), re.MULTILINE)
    answer = castoff(*shlex.split(words), cwd=FOLDER.parents[1])
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == render(planned(path.name))


def test_six_ranks_on_each_of_two_nodes_use_every_gpu() -> None:
    """Once `mpiexec -n 12 -ppn 6 python -m dpo_inv.run_dpo_ddp … --backend ccl`."""
    found = planned("dpo_6_ranks.yaml")
    assert found.start[:5] == ["mpiexec", "-n", "12", "--ppn", "6"]
    assert found.devices.visible == "0,2,4,6,8,10"
    assert dict(found.directives)["select"] == "2"


def test_today_each_tile_has_a_rank() -> None:
    before, found = planned("dpo_6_ranks.yaml"), planned("dpo.yaml")
    assert found.start[:5] == ["mpiexec", "-n", "24", "--ppn", "12"]
    assert found.devices.visible is None and found.devices.step == 1
    assert before.command == found.command
    assert (found.requeue_how, found.requeue_max) == ("copy", 3)


def test_256_nodes_that_go_on() -> None:
    found = planned("large.yaml")
    assert (found.nodes, found.ranks, found.requeue_how, found.requeue_max) == (256, 3072, "copy", 3)
    assert dict(found.directives)["r"] == "y" and [item.activate for item in found.stage] == [True]
