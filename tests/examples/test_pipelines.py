"""The files with several jobs: each pipeline, whole, on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from castoff import Site
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.submission.group_checks import check_plans
from tests.conftest import Castoff

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def project(tmp_path: Path, for_real: None) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    return tmp_path


def test_sums(project: Path, castoff: Castoff) -> None:
    answer = castoff("submit", "examples/slurm/pipeline.yaml", "--site", "local", cwd=project)
    assert answer.returncode == 0, answer.stderr
    assert castoff("wait", "pipeline", cwd=project).returncode == 0
    assert castoff("logs", "evaluate", cwd=project).stdout.splitlines()[-1] == "[0] 500500"


def test_proteins_are_planned(project: Path, monkeypatch: pytest.MonkeyPatch, castoff: Castoff) -> None:
    monkeypatch.chdir(project)
    group = load("examples/slurm/sedd.yaml")
    assert isinstance(group, JobGroup) and group.names == ["prepare", "train", "evaluate"]
    check_plans(group, Site.load("slurm"))
    answer = castoff("submit", "examples/slurm/sedd.yaml", "--site", "slurm", "--dry-run", cwd=project)
    assert answer.returncode == 0, answer.stderr
    assert '"$CASTOFF_RUN_DIR"/after/train' in answer.stdout


@pytest.mark.costly
def test_from_structures_to_designs(project: Path, castoff: Castoff) -> None:
    file = project / "examples" / "local" / "dpo_pipeline.yaml"
    small = file.read_text().replace('"structures", 24', '"structures", 12').replace("ranks_per_node: 2", "")
    file.write_text(small)
    answer = castoff("submit", file, "--site", "local", cwd=project)
    assert answer.returncode == 0, answer.stderr
    ended = castoff("wait", "designs", cwd=project)
    assert ended.returncode == 0, castoff("status", "designs", cwd=project).stdout
    designed = castoff("logs", "design", cwd=project).stdout.splitlines()
    assert [line.split()[1] for line in designed if "] >" in line] == [">made-1", ">made-1_1"]
