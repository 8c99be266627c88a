"""The job files of examples/gnn: what each asks of its machine, and tells the program there."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from launcher import JobSpec, Plan, Site, plan
from tests.command_line import Castoff
from trainers.configuration.config import Config
from trainers.optimization.scaling import resolved

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_FILES = sorted((EXAMPLES / "gnn").glob("*.yaml"))
RANKS = {"aurora": 24, "frontier": 16, "perlmutter": 8, "polaris": 8, "slurm": 4}


def planned(site: str) -> Plan:
    return plan(JobSpec.load(EXAMPLES / "gnn" / f"{site}.yaml"), Site.load(site))


def overrides(found: Plan) -> list[str]:
    """What the command line sets."""
    return [word.removeprefix("--set=") for word in found.command if word.startswith("--set=")]


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_it_uses_nodes_whole_and_goes_on(path: Path) -> None:
    found = planned(path.stem)
    assert found.ranks == RANKS[path.stem]
    assert (found.walltime, found.grace, found.requeue_max) == (6 * 3600, 300, 3)
    assert found.command[:4] == ["castoff", "train", "gnn", "examples/causets.yaml"]


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_the_rate_follows_the_number_of_ranks(path: Path) -> None:
    """In proportion up to 8 of them, else with the root."""
    found = planned(path.stem)
    config = Config.load(EXAMPLES / "causets.yaml", overrides(found))
    grown = found.ranks if found.ranks <= 8 else math.sqrt(found.ranks)
    assert resolved(config, found.ranks).learning_rate == pytest.approx(grown)


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_it_trains(tmp_path: Path, castoff: Castoff) -> None:
    """The file for Slurm, here and on few sets: its folders are found by $SCRATCH."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    small = ["training.num_epochs=1", "training.device=cpu", "data.causets.number=200"]
    command = [*planned("slurm").command, *(f"--set={field}" for field in small)]
    fields = {"command": json.dumps(command), "setup": "[]", "env.SCRATCH": str(tmp_path / "scratch")}
    changed = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    here = ["--site", "local", "--ranks-per-node", "2", "--set", "devices_per_rank=null", *changed]
    answer = castoff("submit", "examples/gnn/slurm.yaml", *here, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "causets", cwd=tmp_path)
    told = castoff("logs", "causets", cwd=tmp_path).stdout
    assert ended.returncode == 0, told
    assert "Training set size: 160, validation: 20, test: 20" in told
    assert list((tmp_path / "scratch" / "trained").glob("*/checkpoints/best/model.pt"))
    assert list((tmp_path / "scratch" / "causets").iterdir())
