"""What a release needs is there, and says the same everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml

from tests import patience
from tests.versions import PYTHONS

CHECKOUT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FORMS = [
    path.relative_to(CHECKOUT) for path in sorted((CHECKOUT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
]
WORKFLOWS = [path.relative_to(CHECKOUT) for path in sorted((CHECKOUT / ".github/workflows").glob("*.yml"))]


def read(name: str) -> Any:
    return yaml.safe_load((CHECKOUT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [Path(".github/ISSUE_TEMPLATE/config.yml")]),
        ("vendor.readthedocs", [Path(".readthedocs.yaml")]),
        ("vendor.citation-file-format", [Path("CITATION.cff")]),
    ],
)
def test_files_for_others_are_what_they_read(schema: str, files: list[Path]) -> None:
    assert files
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_one_version_and_one_place() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == PROJECT["version"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_has_what_comes_next_and_each_release() -> None:
    """As https://keepachangelog.com has it."""
    text = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *others = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "Unreleased"
    assert [one for one in others if not re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", one)] == []
    kinds = {*re.findall(r"^### (.*)$", text, re.MULTILINE)}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_pre_commit_runs_what_the_tests_run() -> None:
    locked = dict(
        line.split("==") for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    revisions = {Path(one["repo"]).name: one["rev"] for one in read(".pre-commit-config.yaml")["repos"]}
    assert revisions == {"ruff-pre-commit": f"v{locked['ruff']}", "codespell": f"v{locked['codespell']}"}


def test_the_pythons_that_it_says() -> None:
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert tuple(named) == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_ci_of_the_forge_runs_that_of_the_project() -> None:
    steps = read(".github/workflows/tests.yml")["jobs"]["tests"]["steps"]
    assert [step for step in steps if step.get("run", "").endswith(" .ci/run")]


def test_the_long_tests_run_each_night() -> None:
    workflow = read(".github/workflows/nightly.yml")
    assert workflow[True]["schedule"]  # YAML 1.1 takes `on` for true
    (last,) = [
        step["run"] for step in workflow["jobs"]["tests"]["steps"] if "make test-long" in step.get("run", "")
    ]
    assert "CASTOFF_TESTS_NO_SKIPS=1" in last
