"""Mistakes on a real Slurm, where ranks are on several hosts: their own words are all that a user has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.desk import Desk
from tests.cluster.slurm import SlurmCluster
from tests.mistakes.programs import MISTAKES
from tests.mistakes.test_mistakes import logged, see_that_it_is_reported


@pytest.mark.parametrize(
    "name",
    ["loss", *(pytest.param(each, marks=pytest.mark.long) for each in ("loss of one rank", "sys.exit"))],
)
def test_a_mistake_is_shown_once(name: str, slurm: SlurmCluster, tmp_path: Path) -> None:
    desk, mistake = Desk(slurm, tmp_path / "desk"), MISTAKES[name]
    program = mistake.write(desk.folder)
    three_on_two = ("--set", "nodes=2", "--set", "ranks=3", "--set", "env.OMP_NUM_THREADS=1")
    run = desk.submit("--walltime", "30m", *three_on_two, command=[sys.executable, program.name])
    assert desk.castoff("wait", run.id).code == mistake.code
    see_that_it_is_reported(mistake, logged(desk.castoff("logs", run.id).output), 3)
    hosts = (run.path / "attempts" / "0.0" / "hosts").read_text().split()
    assert len({*hosts}) == 2
