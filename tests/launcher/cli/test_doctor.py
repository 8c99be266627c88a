"""castoff doctor --trust: who else could change what will run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Castoff

from ..conftest import STRANGER, give_away


@pytest.fixture(autouse=True)
def installed_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the castoff, the Python and the PATH that these tests run with."""
    monkeypatch.setattr("launcher.submission.exposure._of_castoff", lambda environ: iter(()))


JOB = """
python: env/bin/python
templates: ours
setup: [". ./env.sh", "module load x"]
command: [./run.sh, --config, settings.yaml, none.yaml]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with all that can be somebody else's."""
    for name in ("env/bin/python", "ours/blocks/start.sh", "env.sh", "run.sh", "settings.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.yaml").write_text(JOB.replace("env/bin", f"{tmp_path}/env/bin"))
    (tmp_path / ".castoff" / "sites").mkdir(parents=True)
    (tmp_path / ".castoff" / "sites" / "local.yaml").write_text("extends: local\nsetup: ['. ./env.sh']\n")
    return tmp_path


def weak(castoff: Castoff, *words: str) -> dict[str, list[str]]:
    """By what they are, the paths that others can change."""
    answer = castoff("doctor", "--trust", "--json", "--site", "local", *words)
    reported: list[dict[str, Any]] = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.returncode == any(not one["trusted"] for one in reported)
    return {one["what"]: [bad["path"] for bad in one["weak"]] for one in reported}


def test_nothing(castoff: Castoff, project: Path) -> None:
    found = weak(castoff, "job.yaml")
    assert not any(found.values())
    assert {"job file", "project's profile", "folder of runs", "program", "setup's file"} <= found.keys()
    answer = castoff("doctor", "--trust")
    assert answer.returncode == 0
    assert answer.stdout.endswith("only you, root and those you trust can change any of it\n")


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("job file", "job.yaml"),
        ("job's python", "env/bin"),
        ("templates", "ours/blocks/start.sh"),
        ("setup's file", "env.sh"),
        ("program", "run.sh"),
        ("program's file", "settings.yaml"),
        ("project's profile", ".castoff/sites/local.yaml"),
        ("project", ".castoff"),
    ],
)
@pytest.mark.parametrize("how", ["theirs", "shared"])
@pytest.mark.usefixtures("shared_group")
def test_each_thing(castoff: Castoff, project: Path, what: str, name: str, how: str) -> None:
    """A group is enough, though a job file that a group can change is used."""
    if how == "theirs":
        give_away(project / name)
    else:
        (project / name).chmod(0o775)
    assert str(project / name) in weak(castoff, "job.yaml")[what]


@pytest.mark.usefixtures("shared_group")
def test_a_folder_above_all_and_the_fix(castoff: Castoff, project: Path) -> None:
    project.chmod(0o2775)
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    assert lines[-2].endswith(f": castoff trust {project}")
    assert lines[-1] == f"or shut them out: chmod go-w {project}"
    at = next(number for number, line in enumerate(lines) if line.startswith("job file "))
    assert lines[at + 1].strip().startswith(f"{project} can be changed by group ")
    assert castoff("trust", project).returncode == 0
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 0 and "mode 2775) (trusted)\n" in answer.stdout


def test_doctor_reports_all_although_castoff_refuses_a_file(castoff: Castoff, project: Path) -> None:
    give_away(project / ".castoff")
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 1 and "not looked into: " in answer.stderr
    assert f"{project}/.castoff belongs to user {STRANGER}" in answer.stdout
    assert "program's file     settings.yaml" in answer.stdout


def test_it_needs_to_be_given_what_to_look_at(castoff: Castoff) -> None:
    answer = castoff("doctor")
    assert answer.returncode == 2 and "name what to look at: --trust" in answer.stderr
