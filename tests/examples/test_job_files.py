"""The job files of the examples: what their comments show is run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from castoff import JobSpec, Site, plan
from tests.conftest import Castoff

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_FILES = [path for path in sorted(EXAMPLES.glob("*.yaml")) if "\ncommand:" in path.read_text()]

LOCALLY = ["--site", "local", "--nodes", "1", "--ranks-per-node", "2", "--set", "setup=[]"]


@pytest.fixture
def project(tmp_path: Path, for_real: None) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "project" / "examples")
    return tmp_path / "project"


def shown(path: Path) -> list[str]:
    """The castoff commands of a file's first comment."""
    return re.findall(r"^#   castoff (.*?)(?:  +.*)?$", path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.name)
def test_the_commands_of_the_comments(path: Path, project: Path, castoff: Castoff) -> None:
    commands = shown(path)
    assert commands
    for words in commands:
        answer = castoff(*shlex.split(words), cwd=project)
        assert answer.returncode == 0, answer.stderr
        if words.startswith("submit"):
            ended = castoff("wait", path.stem, cwd=project)
            assert ended.returncode == 0, castoff("logs", path.stem, cwd=project).stdout
            assert re.search(r"test accuracy 0\.9", castoff("logs", path.stem, cwd=project).stdout)
    assert (project / f"{path.stem.removesuffix('_job')}.pbs").is_file()


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.name)
def test_aurora_is_used_whole(path: Path) -> None:
    decided = plan(JobSpec.load(path), Site.load("aurora"))
    assert (decided.nodes, decided.ranks) == (2, 24)


@pytest.mark.costly
def test_the_causal_sets_as_a_job(project: Path, castoff: Castoff) -> None:
    """What `make demo` runs, with fewer sets."""
    small = ["training.num_epochs=2", "data.causets={number: 192, size: [12, 16]}"]
    command = ["castoff", "train", "gnn", "examples/causets.yaml"]
    command += [word for field in small for word in ("--set", field)]
    job = ["examples/causets_job.yaml", *LOCALLY, "--set", f"command={json.dumps(command)}"]
    answer = castoff("submit", *job, cwd=project)
    assert answer.returncode == 0, answer.stderr
    assert castoff("wait", "causets", cwd=project).returncode == 0
    logs = castoff("logs", "causets", cwd=project).stdout
    rivals = ("this network", r"forest on \d+ scalars", "Myrheim-Meyer, clipped and rounded")
    for told in ("test accuracy", "test f1", "test dimension_error", *rivals):
        assert re.search(rf"{told} +\d\.\d{{4}}", logs), logs
    (folder,) = (project / "trained").glob("causets_*")
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
